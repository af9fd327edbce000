"""Properties of any run: budgets add up, nothing raises, nothing is invented, the same run gives the same result."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from aged_runs import aged
from recordings import (
    FIRST_STEP_NS,
    MS,
    batches,
    folded,
    gpu_steps,
    plan,
    rank_process,
    recording,
    running,
    series,
    stack,
    stall,
    stall_end,
    steady_counter,
    step,
    table,
)
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS, FLAG_EPOCH_START, FLAG_NO_LOADER

PHASES = ("input_wait", "forward", "backward", "clip", "optimizer", "gap", "evaluation", "checkpoint")
USUAL = (20, 40, 80, 2, 15, 5, 3, 2)
Plans = dict[int, list[dict[str, float]]]


def random_plans(seed: int) -> tuple[Plans, float]:
    """One to four ranks whose phases each vary from step to step around means of their own, and a wire."""
    dice = random.Random(seed)
    ranks, steps = dice.randint(1, 4), dice.randint(150, 250)
    plans = {}
    for rank in range(ranks):
        means = [usual * dice.uniform(0.3, 2.0) for usual in USUAL]
        plans[rank] = [
            {
                **dict(zip(PHASES, (m * dice.uniform(0.7, 1.3) for m in means), strict=True)),
                "samples": 8,
                "micro_batches": 1,
            }
            for _ in range(steps)
        ]
    return plans, dice.choice((0.0, 3.0, 30.0))


@pytest.mark.parametrize("seed", range(20))
def test_the_phases_of_any_run_are_the_whole_step(seed: int) -> None:
    plans, wire = random_plans(seed)
    analysis = analyse(recording(plans, wire_ms=wire))
    step_s = analysis.value("step.time_s")
    assert sum(analysis.budget.critical.values()) == pytest.approx(step_s, rel=0.01)
    for budget in (analysis.budget.critical, *analysis.budget.per_rank.values()):
        assert all(seconds >= 0.0 for seconds in budget.values())
    for phases in analysis.budget.per_rank.values():
        assert sum(phases.values()) == pytest.approx(step_s, rel=0.01)
    assert analysis.model is not None
    assert analysis.model.step_if({}) == pytest.approx(step_s, rel=0.01), "the model knows the step it was made from"


@pytest.mark.parametrize("seed", range(5))
def test_the_time_of_any_run_is_attributed(seed: int) -> None:
    plans, wire = random_plans(100 + seed)
    analysis = analyse(recording(plans, wire_ms=wire))
    assert analysis.budget.critical["unattributed"] <= 0.05 * analysis.value("step.time_s")


@pytest.mark.parametrize("seed", range(5))
def test_a_rank_made_slower_is_the_one_that_is_named(seed: int) -> None:
    plans, wire = random_plans(200 + seed)
    plans = {rank: [dict(row) for row in plans[0]] for rank in range(3)}
    for row in plans[1]:
        row["forward"] += 60
    analysis = analyse(recording(plans, wire_ms=wire))
    assert analysis.by_rank("comm.late_share") == {0: 0.0, 1: 1.0, 2: 0.0}
    assert analysis.value("comm.skew_s") == pytest.approx(0.06, rel=0.01)


def full() -> Recording:
    """A run in which everything was seen."""
    made = [{"start": 0.1 * n, "wall": 80, "cpu": 60, "wait": 20, "pid": 200, "blocks": 10} for n in range(28)]
    samples = {
        ("cpu.allowed_cores", "job"): series((0, 4)),
        ("job.cpu_s", "job"): steady_counter(2.0),
        ("cpu.busy_s", "host"): steady_counter(3.0),
        ("cgroup.quota_cores", "pid:100"): series((0, 1)),
        ("gpu.power_w", "gpu:0"): series((0, 200)),
    }
    loader = {"id": 0, "training": True, "file": "/job/t.py", "line": 4, "num_workers": 1, "batch_size": 8}
    row = {"rank": 0, "frames": [{"function": "f", "file": "/job/t.py", "line": 1}]}
    return recording(
        {0: plan(30, evaluation=20), 1: plan(30, gap=20)},
        wire_ms=5,
        tail_ms={"evaluation": 100},
        batches={0: batches(made)},
        samples=samples,
        facts={100: {"loaders": [loader], "save_sites": [{"file": "/job/t.py", "line": 9, "count": 2}]}},
        events=(stack("/job/t.py", 7, "f"), stall(40.0, row), stall_end()),
        gpu_steps={0: gpu_steps([{"forward": 40, "backward": 50}] * 30)},
    )


def without(**tables: Any) -> Recording:
    return replace(full(), **tables)


def lost(made: Recording) -> Recording:
    """Two of three records of rank 1 were lost."""
    return replace(made, steps={**made.steps, 1: made.steps[1][::3]})


def died_at_once() -> Recording:
    made = recording({0: plan(30), 1: []}, wire_ms=5)
    dead = rank_process(1, ended_ns=FIRST_STEP_NS, exit_code=1, clean_exit=False)
    return replace(made, processes=(made.processes[0], dead))


def restarted() -> Recording:
    """Elastic: a second process of rank 0 counts its steps from 0 again."""
    made, again = recording({0: plan(30), 1: plan(30)}), recording({0: plan(12), 1: plan(12)})
    later = {}
    for rank, counted in again.steps.items():
        rows = counted.copy()
        for name in ("t_start_ns", "t_end_ns"):
            rows[name] += 60_000 * MS
        later[rank] = np.concatenate([made.steps[rank], rows])
    return replace(made, steps=later)


RUNS: dict[str, Callable[[], Recording]] = {
    "empty": lambda: recording({}),
    "processes without a step": lambda: recording({0: [], 1: []}),
    "one step": lambda: recording({0: plan(1)}),
    "one step of two ranks": lambda: recording({0: plan(1), 1: plan(1)}, wire_ms=5),
    "two steps of two ranks": lambda: recording({0: plan(2), 1: plan(2)}, wire_ms=5),
    "different numbers of steps": lambda: recording({0: plan(30), 1: plan(7)}, wire_ms=5),
    "a rank that died at once": died_at_once,
    "only a tail": lambda: replace(full(), steps={0: full().steps[0][-1:]}),
    "lost records": lambda: lost(full()),
    "an elastic restart": restarted,
    "everything": full,
    "while it runs": lambda: running(full()),
    "folded": lambda: replace(full(), steps={r: folded(rows, 5, 29) for r, rows in full().steps.items()}),
    "no stamps": lambda: without(comm={}),
    "stamps of one rank": lambda: without(comm={0: full().comm[0]}),
    "stamps of other steps": lambda: without(comm={r: rows[:1] for r, rows in full().comm.items()}),
    "no samples": lambda: without(samples={}),
    "no facts": lambda: without(facts={}),
    "empty facts": lambda: without(facts={100: {}, 101: {}}),
    "no processes": lambda: without(processes=()),
    "no batches": lambda: without(batches={}),
    "empty tables": lambda: without(
        steps={r: rows[:0] for r, rows in full().steps.items()}, batches={0: batches([])}, gpu_steps={0: gpu_steps([])}
    ),
    "steps without a phase": lambda: recording({0: [step(input_wait=0, forward=0, backward=0, optimizer=1)] * 20}),
    "steps of a microsecond": lambda: recording({0: plan(20, input_wait=0, forward=0, backward=0, optimizer=0.001)}),
    "no loader": lambda: recording({0: plan(30, flags=FLAG_NO_LOADER), 1: plan()}),
    "each step an epoch": lambda: recording({0: plan(30, flags=FLAG_EPOCH_START)}),
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.filterwarnings("error")
def test_any_run_is_analysed_and_judged_without_a_crash(name: str) -> None:
    report = diagnose(RUNS[name]())
    assert [row for row in report.outcomes if row.state == "crashed"] == []
    assert report.verdict.title


@pytest.mark.parametrize("name", RUNS)
def test_no_number_of_any_analysis_is_nan(name: str) -> None:
    analysis = analyse(RUNS[name]())
    numbers = [*analysis.values.values(), *analysis.budget.critical.values(), analysis.duration_s]
    numbers += [s for phases in analysis.budget.per_rank.values() for s in phases.values()]
    numbers += [n for c in analysis.capacities for n in (c.samples_per_s, c.lo, c.hi) if n is not None]
    assert all(math.isfinite(number) for number in numbers)
    assert all(number >= 0.0 for (name, _), number in analysis.values.items() if name != "comm.excess_s")


@pytest.mark.parametrize("name", RUNS)
def test_the_same_run_gives_the_same_analysis(name: str) -> None:
    made = RUNS[name]()
    before = [rows.copy() for rows in made.steps.values()]
    first, second, again = diagnose(made), diagnose(made), diagnose(RUNS[name]())
    assert plain(first) == plain(second) == plain(again)
    assert all((old == new).all() for old, new in zip(before, made.steps.values(), strict=True)), "it was only read"


def plain(report: Report) -> dict[str, Any]:
    document = report.as_json()
    assert from_json(document).as_json() == document
    return document


@pytest.mark.parametrize(
    "name", ["empty", "one step", "one step of two ranks", "processes without a step", "only a tail"]
)
def test_unmeasured_parts_are_absent(name: str) -> None:
    analysis = analyse(RUNS[name]())
    assert analysis.model is None and analysis.step_time.median_s is None
    assert analysis.throughput.samples_per_s is None and not analysis.budget.critical
    assert not analysis.has("step.time_s")


def pausing(rank: int | None = None, phase: str = "forward") -> Recording:
    """Every 50th step takes half a second more, on this rank or on both of them."""
    long, usual = [step(**{phase: 530} if n % 50 == 9 else {}) for n in range(1000)], plan(1000)
    return recording({n: long if rank in (None, n) else usual for n in (0, 1)}, wire_ms=5)


@pytest.mark.parametrize("name", ["comm.skew_s", "comm.wire_s"])
def test_rare_long_steps_weigh_as_much_in_blame_as_they_come(name: str) -> None:
    whole, old = (analyse(made).value(name) for made in (pausing(0), aged(pausing(0), 400)))
    assert old == pytest.approx(whole, rel=0.03)


@pytest.mark.parametrize("whole", [1000, 400, 40])
def test_the_critical_path_of_an_aged_run_is_still_the_whole_step(whole: int) -> None:
    made = pausing(phase="evaluation")
    analysis = analyse(made if whole == 1000 else aged(made, whole))
    critical, step_s = analysis.budget.critical, analysis.value("step.time_s")
    assert sum(critical.values()) == pytest.approx(step_s, rel=0.01)
    assert critical["gap.evaluation"] == pytest.approx(analysis.value("step.evaluation_s", 0), rel=0.01)


def stalling(steps: int, *, every: int, ms: float = 200, scale: float = 1.0) -> list[dict[str, float]]:
    """Three steps in a row, of so many, are longer by some milliseconds."""
    made = [step(forward=30 + ms if n % every in (5, 6, 7) else 30) for n in range(steps)]
    return [{name: v * scale if name not in ("samples", "micro_batches") else v for name, v in s.items()} for s in made]


def test_the_usual_and_the_longest_steps_are_those_of_all_steps() -> None:
    time = analyse(aged(recording({0: stalling(1000, every=100, scale=0.02)}), 20)).step_time
    assert time.median_s == pytest.approx(0.002, rel=0.05) and time.p95_s == pytest.approx(0.002, rel=0.05)


def test_outliers_that_were_kept_are_no_change_of_speed() -> None:
    quick = [*stalling(4000, every=4000, scale=0.05), *stalling(4000, every=100, scale=0.05)]
    assert analyse(recording({0: quick})).changes == ()
    assert analyse(aged(recording({0: quick}), 100)).changes == ()


@pytest.mark.parametrize("rank", [0, 1])
def test_the_rank_that_stalls_is_found_beside_its_folded_past(rank: int) -> None:
    long = [step(forward=180 if n % 20 == 5 else 30) for n in range(3600)]
    pulse = analyse(aged(recording({rank: long, 1 - rank: plan(3600)}), 240)).pulse
    assert pulse is not None and (pulse.period_steps, pulse.rank, pulse.phase) == (20, rank, "forward")


def test_compute_is_what_single_steps_took() -> None:
    made = recording({0: stalling(1000, every=40, ms=600)})
    whole, old = (next(c for c in analyse(m).capacities if c.stage == "compute") for m in (made, aged(made, 240)))
    assert old.samples_per_s == pytest.approx(whole.samples_per_s, rel=0.02)


def test_collectives_of_steps_whose_record_is_gone_are_those_of_the_others() -> None:
    def calls(made: Recording, recorded: Sequence[int]) -> Analysis:
        rows = [{"step": n, "calls": 4, "optimizer_ns": 20_000_000, "group_size": 2} for n in recorded]
        return analyse(replace(made, collectives=dict.fromkeys((0, 1), table((*COLLECTIVES_FIELDS, "flags"), rows))))

    own = plan(1000, optimizer=30)
    made = recording({0: own, 1: own}, ddp=False)
    whole, old = calls(made, range(1000)), calls(aged(made, 200), range(860, 1000))
    for name in ("comm.wire_s", "collectives.by_hand_s"):
        assert old.value(name) == pytest.approx(whole.value(name)) == pytest.approx(0.020)
    assert old.value("collectives.calls", 0) == pytest.approx(4.0)
    assert old.budget.per_rank[0]["optimizer"] == pytest.approx(0.010)


def test_why_a_recorder_gave_up_is_known() -> None:
    gaps = (ProbeGap("gpu.*", "host", "no driver"), ProbeGap("recorder", "pid:7", "the recorder met an error in pid 7"))
    assert analyse(replace(recording({}), gaps=gaps)).recorder_error == "the recorder met an error in pid 7"
    assert analyse(recording({})).recorder_error == ""
