"""DAT004, too few workers for the cores at hand: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rule_cases as jobs
from input_rule_cases import fix_of, short_of
from rn50_advisor.advisor.model.findings import Clear, Finding, Where
from rn50_advisor.advisor.model.input.sample_cost import SampleLine
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import LINE, SCRIPT, WAIT, loader, rank
from rule_runs import RULES, found
from rule_table import Table, waits
from table_checks import Check, checks

EIGHT = {"workers": 8, "wall": 7.6}  # a ninth would make the batches an eighth faster


TABLE = Table(
    "DAT004",
    jobs.dat004,
    lines={
        **WAIT,
        "busy": ({"busy": 0.85}, {"busy": 0.849}),
        "spare_share": ({"idle": 2.41}, {"idle": 2.39}),
        "spare_cores": ({**EIGHT, "allowed": 2.0, "idle": 0.5}, {**EIGHT, "allowed": 2.0, "idle": 0.49}),
        "gain": ({"allowed": 2.0, "idle": 0.4, "wall": 2.699}, {"allowed": 2.0, "idle": 0.4, "wall": 2.7}),
    },
    false_alarms={
        "workers that wait for indices": {"busy": 0.5},
        "part of a core idle, and one worker more among many hardly helps": {**EIGHT, "allowed": 2.0, "idle": 0.49},
        "no core left for another worker": {"idle": 0.2},
        "workers that take turns at a lock": {"values_too": {"loader.lock_share": 0.3}},
        "the gaps of a full host, however much a core would help": {"allowed": 2.0, "idle": 0.29},
        "loading in the training process": {"workers": 0},
    },
    severities=waits("wait"),
    where=LINE,
    best=({"wall": 5.0}, 1 / (5.0 / 7)),
    also_fires={"a neighbour leaves part of a core, and it helps even at worst": {"allowed": 2.0, "idle": 0.4}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_dat004_respects_memory_and_reports_it() -> None:
    a = short_of(jobs.dat004(workers=2), memory__worker_mb=400.0, memory__headroom_mb=1200.0)
    fix = fix_of("DAT004", a)
    assert fix.title == "num_workers=2 → 3, persistent_workers=True"
    assert fix.change.endswith("8 would fit the cores, 3 the memory")


def test_dat004_asks_for_free_space_if_no_more_worker_fits() -> None:
    a = short_of(jobs.dat004(workers=2), memory__worker_mb=500.0, memory__headroom_mb=900.0)
    fix = fix_of("DAT004", a)
    assert "the memory holds no more" in fix.title and "then num_workers=3" in fix.change


# workers there are, seconds to make a batch, idle cores, workers advised
@pytest.mark.parametrize(
    ("present", "wall", "idle", "advised"),
    [
        (2, 1.9, 11.5, 4),  # beside a step of 0.6 s: 1.9 / 3 would be as long, and batches a little slower
        (2, 1.9, 2.5, 3),  # one idle core a rank
        (6, 1.9, 2.5, 7),  # always at least one more than there are
    ],
)
def test_dat004_advises_the_knee_of_the_forecast(present: int, wall: float, idle: float, advised: int) -> None:
    fix = found("DAT004", TABLE.job(workers=present, wall=wall, idle=idle)).fixes[0]
    assert fix.title == f"num_workers={present} → {advised}, persistent_workers=True"


def test_dat004_asks_for_persistent_workers_only_if_they_are_not() -> None:
    lasting = tuple(loader(n, 2, persistent=True) for n in (0, 1))
    fix = found("DAT004", TABLE.job(loaders=lasting)).fixes[0]
    assert fix.title == "num_workers=2 → 4" and "persistent_workers=True" in fix.change


def test_dat004_stays_silent_if_more_workers_gain_nothing() -> None:
    crowd = {
        "workers": 64,
        "wall": 61.0,
        "allowed": 200.0,
        "idle": 100.0,
    }  # it was not measured how more of them share a machine
    assert run_rule(RULES["DAT004"], jobs.dat004(**crowd), Config()) == Clear("DAT004")
    served = found("DAT004", TABLE.job(**crowd, values_too={"loader.asking_share": 0.6}))
    assert served.saving is not None and served.saving.speedup == (1.0, 1.0)


def test_dat004_adds_workers_that_sleep_on_busy_cores() -> None:
    few = {"loader.busy_share": {0: 0.95, 1: 0.95}, "cpu.host_busy_cores": 15.5, "cpu.allowed_cores": 16.0}
    fed = {"fetch.wall_s": {0: 1.9, 1: 1.9}, "loader.workers": {0: 2, 1: 2}}
    own = {0: rank(input_wait=0.4), 1: rank(input_wait=0.4)}
    for share, says in ((1.0, Clear), (0.1, Finding)):
        values = {**few, **fed, "fetch.cpu_share": {0: share, 1: share}}
        assert isinstance(run_rule(RULES["DAT004"], jobs.job(own, values=values), Config()), says)


def test_dat004_judges_a_rank_without_measured_batches_by_the_others() -> None:
    # rank 1 waits longest, but only rank 0's batches were seen being made
    values = {("fetch.wall_s", 1), ("loader.workers", 1), ("loader.busy_share", 1)}
    analysis = jobs.dat004()
    own = {**analysis.values, ("step.input_wait_s", 1): 0.5}
    partly = {key: value for key, value in own.items() if key not in values}
    finding = run_rule(RULES["DAT004"], replace(analysis, values=partly), Config())
    assert isinstance(finding, Finding), finding


def test_stolen_cores_are_not_idle_cores() -> None:
    analysis = jobs.dat004(idle=4.0, allowed=8.0)
    about = {"cpu.host_cores": 8.0, "cpu.steal_share": 0.45}
    stolen = replace(analysis, values={**analysis.values, **{(name, "job"): value for name, value in about.items()}})
    assert isinstance(run_rule(RULES["DAT004"], analysis, Config()), Finding)
    assert run_rule(RULES["DAT004"], stolen, Config()) == Clear("DAT004")


def test_dat004_promises_no_certain_gain_if_workers_wait_for_a_server() -> None:
    line = SampleLine("__getitem__", SCRIPT, 61, 7, 10)
    asks, plain = (
        found("DAT004", TABLE.job(values_too={"loader.asking_share": share}, asking=line)) for share in (0.5, 0.49)
    )
    assert asks.saving is not None and plain.saving is not None
    assert asks.saving.speedup[0] == 1.0 < plain.saving.speedup[0] and asks.saving.speedup[1] == plain.saving.speedup[1]
    assert (
        "if the server can handle more concurrent requests" in asks.fixes[0].title
        and "server" not in plain.fixes[0].title
    )
    assert asks.fixes[1].where == Where(SCRIPT, 61) and len(plain.fixes) == 1
    assert asks.confidence < plain.confidence and any("7 of 10 stacks" in e.note for e in asks.evidence)
