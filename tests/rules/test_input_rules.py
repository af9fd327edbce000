"""What several rules on loading and storage have in common, and which of them is the root."""

from __future__ import annotations

from dataclasses import replace

import storage_rule_cases as storage_jobs
from rn50_advisor.advisor.model.findings import NotMeasured
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import dat002, rank
from rule_runs import RULES
from storage_rule_cases import causes


def test_a_throttled_volume_is_listed_under_the_storage_that_starves() -> None:
    assert causes(storage_jobs.dsk002()) == {"DAT002": None, "DSK002": "DAT002"}


def test_a_disk_that_the_job_itself_saturates_is_listed_under_it_too() -> None:
    assert causes(storage_jobs.dsk001()) == {"DAT002": None, "DSK001": "DAT002"}


def test_a_job_that_does_not_wait_needs_no_look_at_its_disk() -> None:
    for rule in ("DAT010", "DSK001", "DSK002"):
        assert not isinstance(run_rule(RULES[rule], dat002(wait=0.01), Config()), NotMeasured)


def test_storage_without_measures_is_not_measured() -> None:
    assert run_rule(RULES["DSK001"], dat002(), Config()) == NotMeasured(
        "DSK001", ("storage.busy_share", "storage.queue")
    )
    assert run_rule(RULES["DSK002"], dat002(), Config()) == NotMeasured("DSK002", ("storage.read_mb_s",))


def test_one_ranks_slow_data_is_not_the_disk_of_all() -> None:
    own = {0: rank(input_wait=0.0), 1: rank(input_wait=0.4)}
    waits = {("step.input_wait_s", n): phases["input_wait"] for n, phases in own.items()}
    for made in (storage_jobs.dsk001(), storage_jobs.dsk002(), storage_jobs.dat010()):
        assert causes(replace(made, values={**made.values, **waits})) == {}
