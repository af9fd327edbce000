"""DAT012, shared memory is too small: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import input_rule_cases as input_jobs
from ending_rule_cases import death, unjudged
from rn50_advisor.advisor.model.analysis import Death
from rn50_advisor.advisor.model.findings import NotMeasured
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import LINE, loader
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks

BUS = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error. Workers are out of shared memory."


NO_ROOM = "RuntimeError: unable to allocate shared memory(shm) for file </torch_7_1_0>: No space left on device (28)"


CUT_OFF = 'RuntimeError: Caught RuntimeError in DataLoader worker process 0.\n  File "storage.py", line 1220, in _new_shared\n    un'


STOPPED = {"exit_code": None, "signal": 2}


TABLE = Table(
    "DAT012",
    input_jobs.dat012,
    lines={"full": ({"full": 0.9}, {"full": 0.8999})},
    false_alarms={
        "no worker hands batches over there": {"workers": 0},
        "a data set is kept there, and plenty is left": {"total_mb": 160_000.0},
        "twice as much is left as all workers hand over": {"total_mb": 2000.0, "batch_mb": 6.0},
        "a worker ended by something else": {"full": 0.1, "deaths": (death(0, role="worker", signal=9),)},
        "the user pressed Ctrl-C": {"full": 0.1, "deaths": (death(0, **STOPPED), death(1, **STOPPED))},
    },
    severities=(({}, "medium"), ({"deaths": (death(1, exception=BUS),)}, "critical")),
    where=LINE,
    also_fires={
        "less than twice as much is left": {"total_mb": 2000.0, "batch_mb": 6.5},
        "a worker met SIGBUS": {"full": 0.1, "deaths": (death(1, role="worker", signal=7, exit_code=None),)},
        "its rank says so": {"full": 0.1, "deaths": (death(1, exception=BUS),)},
        "the traceback is cut off": {"full": 0.1, "deaths": (death(1, exception=CUT_OFF),)},
        "it could not write its batch": {"full": 0.1, "deaths": (death(1, exception=NO_ROOM),)},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_dat012_reports_a_death_in_the_words_of_the_rank() -> None:
    dead = death(1, exception="RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.", step=3)
    finding = found("DAT012", TABLE.job(full=0.3, deaths=(dead,)))
    assert finding.fatal and finding.scope.ranks == (1,) and "64 MB" in finding.title
    assert "Bus error" in str(finding.evidence[0].value)
    assert not found("DAT012", TABLE.job()).fatal


@pytest.mark.parametrize(
    ("dead", "line"),
    [
        pytest.param((), 42, id="nearly full: what trains"),
        pytest.param((death(1, role="worker", signal=7),), 42, id="a worker of an unknown loader"),
        pytest.param((death(1, role="worker", signal=7, loader=42),), 42, id="the training loader's worker"),
        pytest.param((death(1, role="worker", signal=7, loader=60),), 60, id="the evaluation loader's"),
        pytest.param((death(1, role="worker", signal=15, loader=60),), 42, id="one that was merely ended"),
    ],
)
def test_dat012_names_the_loader_whose_worker_died_else_the_one_that_trains(dead: tuple[Death, ...], line: int) -> None:
    reported = death(1, exception="RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error.")
    loaders = tuple(loader(r, 2, line=at, training=at == 42) for r in (0, 1) for at in (30, 60, 42))
    deaths = (*dead, reported) if dead else ()
    where = found("DAT012", TABLE.job(deaths=deaths, loaders=loaders)).fixes[0].where
    assert where is not None and where.line == line


def test_dat012_is_not_measured_without_the_fill_level() -> None:
    unknown = replace(unjudged(), loaders=(loader(0, 2),))
    assert run_rule(RULES["DAT012"], unknown, Config()) == NotMeasured("DAT012", ("shm.used_share",))
