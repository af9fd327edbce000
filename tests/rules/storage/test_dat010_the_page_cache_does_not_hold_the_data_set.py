"""DAT010, the page cache does not hold the data set: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import storage_rule_cases as storage_jobs
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import dat002
from rule_runs import RULES, found
from rule_table import Table
from storage_rule_cases import NOT_STARVED, STARVED, causes
from table_checks import Check, checks

TABLE = Table(
    "DAT010",
    storage_jobs.dat010,
    lines={
        **STARVED,
        "again": ({"again": 0.3}, {"again": 0.299}),
        "later": ({"later": 0.2}, {"later": 0.199}),
    },
    false_alarms={
        **NOT_STARVED,
        "later epochs come from memory": {"again": 0.02},
        "what was read was the first epoch's": {"later_reads": 0.01},
    },
    severities=(({"wait": 0.4}, "critical"), ({"wait": 0.2}, "high"), ({"wait": 0.1}, "medium")),
    best=({"wait": 0.4, "blocked": 0.9}, 1 / 0.6),
    also_fires={"the host itself is too small": {"host": 500.0, "group": None}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def both(first: Analysis, second: Analysis) -> Analysis:
    return replace(first, values={**first.values, **second.values})


def test_a_memory_limit_below_the_data_set_is_the_root_of_reading_it_again() -> None:
    analysis = both(storage_jobs.dsk002(), storage_jobs.dat010())
    assert causes(analysis) == {"DAT010": None, "DAT002": "DAT010", "DSK002": "DAT010"}
    finding = found("DAT010", analysis)
    assert "90 % of 800 MB read again" in finding.title
    assert "memory limit by 620 MB" in finding.fixes[0].title  # 1.15 * 800 - 300


@pytest.mark.parametrize("room", [{"host": 500.0, "group": None}, {"host": 500.0, "group": 300.0}, {"group": 900.0}])
def test_where_no_limit_is_to_blame_the_storage_is(room: dict[str, Any]) -> None:
    assert causes(storage_jobs.dat010(**room)) == {"DAT002": None, "DAT010": "DAT002"}
    assert "limit" not in found("DAT010", storage_jobs.dat010(**room)).fixes[0].title


def test_only_what_later_epochs_read_can_be_kept() -> None:
    """Both ranks wait 0.4 s, all of it for reads; of these a half belongs to the first epoch."""
    whole, half = (
        found("DAT010", storage_jobs.dat010(wait=0.4, blocked=0.8, later_reads=share)) for share in (1.0, 0.5)
    )
    assert whole.seconds_per_step == pytest.approx(0.4)
    assert half.seconds_per_step == pytest.approx(0.2)


def test_a_run_that_is_soon_over_is_mostly_its_first_epoch() -> None:
    """Reads cost later epochs 0.4 of 1 s; the first one, at 2 s a step, has to read whatever the memory."""
    analysis = storage_jobs.dat010(wait=0.4, blocked=0.9, later=1.0)
    cold = {("epoch.cold_steps", "job"): 100.0, ("epoch.cold_step_s", "job"): 2.0}
    plain, separate = (found("DAT010", replace(analysis, values={**analysis.values, **m})) for m in ({}, cold))
    assert plain.saving is not None and separate.saving is not None
    assert separate.saving.speedup[1] == pytest.approx(plain.saving.speedup[1])
    assert plain.saving.speedup[0] == pytest.approx(1 / 0.775), "half of a batch's 0.45 s, of two workers, held"
    assert separate.saving.speedup[0] == pytest.approx(3.0 / 2.6), "all of it held, and one epoch more"
    long = replace(analysis, values={**analysis.values, **cold, ("storage.later_epochs", "job"): 50.0})
    assert found("DAT010", long).saving == plain.saving, "over many epochs the first one is nothing"


def test_cached_reads_of_the_training_process_leave_it_its_computing() -> None:
    finding = found("DAT010", storage_jobs.dat010(wait=0.4, blocked=0.5, workers=0))
    assert finding.seconds_per_step == pytest.approx(0.2)


def test_a_job_of_a_single_epoch_is_not_measured() -> None:
    assert run_rule(RULES["DAT010"], dat002(), Config()) == NotMeasured(
        "DAT010",
        ("storage.reread_share", "storage.later_epochs", "storage.epoch_mb", "storage.later_read_share"),
    )


def test_memory_for_what_is_read_again_adds_no_cores() -> None:
    few = {"wait": 0.8, "blocked": 0.9, "cores": 2.0}
    roomy, full = (found("DAT010", storage_jobs.dat010(**few, job_cores=cores)) for cores in (0.4, 1.2))
    assert roomy.saving is not None and roomy.saving.speedup[1] == pytest.approx(1 / 0.55)
    assert full.saving is not None and full.saving.speedup[1] == pytest.approx(1 / 0.6)
