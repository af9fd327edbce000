"""Stalls with a period: in steps or in seconds, on which rank, with what; and stalls without one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from noisy_runs import noisy_plan
from recordings import FIRST_STEP_NS, SECOND, batches, epoch_starts, gpu_steps, plan, recording, series
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.periodic_stalls import MORE_WORK, WORKER_COLLECTS
from rn50_advisor.advisor.analysis.steps.phases import OWN_PHASES
from rn50_advisor.advisor.model.analysis import PeriodicStall
from rn50_advisor.advisor.model.recording import Recording

Plan = list[dict[str, float]]


def pulse(made: Recording) -> PeriodicStall | None:
    return analyse(made).pulse


def stalling(steps: Plan, when: Callable[[int], bool], **more: float) -> Plan:
    """The same steps, these phases longer in some of them."""
    return [
        {**s, **{name: s.get(name, 0.0) + ms for name, ms in more.items()}} if when(n) else s
        for n, s in enumerate(steps)
    ]


@pytest.mark.parametrize("every", [3, 7, 10, 25, 40])
@pytest.mark.parametrize(("phase", "named"), [("gap", "gap"), ("forward", "forward"), ("input_wait", "input_wait")])
def test_the_period_and_the_phase_are_found(every: int, phase: str, named: str) -> None:
    found = pulse(recording({0: stalling(noisy_plan(1, 300), lambda n: n % every == 0, **{phase: 150})}))
    assert found is not None
    assert found.period_steps == every and found.phase == named and found.coincides == ""
    assert found.stall_s == pytest.approx(0.15, abs=0.02)
    assert found.share == pytest.approx(150 / every / (100 + 150 / every), abs=0.02)


def test_stalls_while_a_worker_collects_garbage_are_named() -> None:
    """A worker's batch takes 160 ms instead of 60, for a collection of 120 ms; each such batch holds up one step."""
    steps = stalling(noisy_plan(1, 300), lambda n: n % 10 == 0, input_wait=150)
    begun, rows = 0.0, []
    for n, step in enumerate(steps):
        length = sum(ms for name, ms in step.items() if name in OWN_PHASES) / 1000
        wall, collected = (length * 1000, 120) if n % 10 == 0 else (60, 0)
        rows.append({"start": begun, "wall": wall, "gc": collected, "worker": 0, "pid": 200, "number": n})
        begun += length
    found = pulse(recording({0: steps}, batches={0: batches(rows)}))
    assert found is not None and found.coincides == WORKER_COLLECTS
    nowhere = pulse(recording({0: steps}, batches={0: batches([{**row, "gc": 0} for row in rows])}))
    assert nowhere is not None and nowhere.coincides == ""


@pytest.mark.parametrize("growth", [0, 20], ids=["alike", "each longer than the one before"])
def test_stalls_that_grow_are_found(growth: float) -> None:
    steps = [
        {**s, "gap": s.get("gap", 0.0) + 150 + growth * (n // 20)} if n % 20 == 0 else s
        for n, s in enumerate(noisy_plan(1, 300))
    ]
    found = pulse(recording({0: steps}))
    assert found is not None and found.gap_share > 0.9
    if growth:
        assert found.grew == (pytest.approx(0.2, abs=0.05), pytest.approx(0.4, abs=0.05))
    else:
        assert found.grew is None


def test_of_stalls_in_two_phases_the_part_in_the_gap_is_known() -> None:
    found = pulse(recording({0: stalling(noisy_plan(1, 300), lambda n: n % 10 == 0, backward=100, gap=50)}))
    assert found is not None and found.phase == "backward" and found.gap_share == pytest.approx(1 / 3, abs=0.05)


def test_a_few_stalls_more_or_less_do_not_hide_the_period() -> None:
    missing, extra = {40, 130}, {17, 78}
    steps = stalling(noisy_plan(2, 300), lambda n: (n % 10 == 0 and n not in missing) or n in extra, gap=120)
    found = pulse(recording({0: steps}))
    assert found is not None and found.period_steps == 10


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_small_hiccups_of_a_busy_machine_do_not_hide_tall_stalls(seed: int) -> None:
    random = np.random.default_rng(seed)
    hiccups = set(random.choice(400, 27, replace=False).tolist())
    steps = stalling(noisy_plan(2, 400), lambda n: n in hiccups, forward=50)
    found = pulse(recording({0: stalling(steps, lambda n: n % 20 == 0, forward=260)}))
    assert found is not None and found.period_steps == 20 and found.events == pytest.approx(20, abs=1)
    assert pulse(recording({0: steps})) is None, "the hiccups alone have no period"


def test_a_period_in_seconds_is_one_too() -> None:
    """Something on the machine comes every four seconds, whatever step is made just then."""
    random, now, next_at, steps = np.random.default_rng(5), 0.0, 4.0, []
    for s in noisy_plan(3, 400):
        long = {**s, "forward": s["forward"] + float(random.uniform(0, 40))}
        took = sum(long.get(name, 0.0) for name in ("input_wait", "forward", "backward", "optimizer")) / 1000
        if now + took >= next_at:
            long["forward"] += 400
            took += 0.4
            next_at += 4.0
        now += took
        steps.append(long)
    found = pulse(recording({0: steps}))
    assert found is not None and found.period_s == pytest.approx(4.0, rel=0.1)


def test_the_rank_that_stalls_is_distinguished_from_ranks_that_wait() -> None:
    ranks = {0: noisy_plan(1, 200), 1: stalling(noisy_plan(2, 200), lambda n: n % 20 == 5, forward=150)}
    found = pulse(recording(ranks))
    assert found is not None and (found.rank, found.phase) == (1, "forward")
    together = pulse(recording({rank: stalling(p, lambda n: n % 20 == 5, gap=150) for rank, p in ranks.items()}))
    assert together is not None and together.rank is None


@pytest.mark.parametrize(
    ("phase", "name"), [("evaluation", "an evaluation"), ("checkpoint", "a checkpoint"), ("gc", "a garbage collection")]
)
def test_what_coincides_is_named(phase: str, name: str) -> None:
    more = {"gap": 150.0, "gc": 140.0} if phase == "gc" else {phase: 150.0}
    found = pulse(recording({0: stalling(noisy_plan(1, 200), lambda n: n % 10 == 3, **more)}))
    assert found is not None and found.coincides == name


@pytest.mark.parametrize(("every_s", "name"), [(4.0, "a disk flush"), (7.3, "")])
def test_a_flush_of_the_disk_is_named_where_it_comes_with_the_stalls(every_s: float, name: str) -> None:
    """Forty steps of 100 ms and one of 400 in 4.3 seconds; the disk is written to as often, or at another pace."""
    made = recording({0: stalling(noisy_plan(1, 400, slow_noise=0.0), lambda n: n % 40 == 39, gap=300)})
    at = (
        [int(row["t_end_ns"]) for row in made.steps[0][39::40]]
        if name
        else [FIRST_STEP_NS + int(every_s * n * 1e9) for n in range(1, 7)]
    )
    readings, written = [], 0.0
    for second in range(46):
        now_ns = FIRST_STEP_NS + second * SECOND
        written += sum(40e6 for moment in at if now_ns - SECOND < moment <= now_ns)
        readings.append((float(second), written))
    found = pulse(replace(made, samples={("disk.write_bytes", "disk:vda"): series(*readings)}))
    assert found is not None and found.coincides == name


def test_the_start_of_epochs_is_named() -> None:
    found = pulse(recording({0: epoch_starts(noisy_plan(1, 200), 10, input_wait=160)}))
    assert found is not None and found.coincides == "an epoch begins"


@pytest.mark.parametrize(
    ("more", "name"),
    [
        pytest.param({"forward": 40, "backward": 70, "optimizer": 20}, MORE_WORK, id="a second network's turn"),
        pytest.param({"forward": 30, "backward": 90}, MORE_WORK, id="a penalty in the loss"),
        pytest.param({"forward": 120}, "", id="a service that answers late"),
        pytest.param({"backward": 120}, "", id="a hook that writes histograms"),
        pytest.param({"forward": 25, "backward": 35, "gap": 90}, "", id="mostly something else"),
    ],
)
def test_steps_that_compute_more_are_distinguished_from_stalls(more: dict[str, float], name: str) -> None:
    found = pulse(recording({0: stalling(noisy_plan(1, 300), lambda n: n % 5 == 0, **more)}))
    assert found is not None and found.period_steps == 5 and found.coincides == name


def test_what_one_rank_does_alone_is_no_work_of_the_model() -> None:
    more = {"forward": 50.0, "backward": 90.0}
    ranks = {0: noisy_plan(1, 300), 1: noisy_plan(2, 300)}
    found = pulse(recording({**ranks, 1: stalling(ranks[1], lambda n: n % 10 == 0, **more)}))
    assert found is not None and found.rank == 1 and found.coincides == ""
    together = pulse(recording({rank: stalling(p, lambda n: n % 10 == 0, **more) for rank, p in ranks.items()}))
    assert together is not None and together.coincides == MORE_WORK


def scattered(n: int) -> bool:
    return n in {11, 29, 34, 80, 86, 131, 170, 181, 243, 255, 290}


@pytest.mark.parametrize(
    "steps",
    [
        pytest.param(noisy_plan(1, 300), id="noise"),
        pytest.param(stalling(noisy_plan(1, 300), scattered, gap=300), id="stalls at random"),
        pytest.param(
            stalling(noisy_plan(1, 300), lambda n: n < 30 and n % 4 == 0, gap=200), id="a hiccup at the start"
        ),
        pytest.param(stalling(noisy_plan(1, 300), lambda n: n % 80 == 9, gap=200), id="four are not enough"),
        pytest.param(
            stalling(noisy_plan(1, 300), lambda n: n % 2 == 0, gap=50), id="every second step is another kind"
        ),
        pytest.param(stalling(noisy_plan(1, 300), lambda n: n % 10 == 0, gap=12), id="a tenth longer is no stall"),
        pytest.param(stalling(plan(20), lambda n: n % 4 == 0, gap=200), id="too short"),
    ],
)
def test_what_has_no_period_is_none(steps: Plan) -> None:
    assert pulse(recording({0: steps})) is None


AHEAD_MS = 80.0


def ahead(n: int) -> float:
    """A host that runs ahead of the GPU: it waits for it in every 20th step, and is ahead again after four quick ones."""
    return AHEAD_MS if n % 20 == 0 else -AHEAD_MS / 4 if n % 20 <= 4 else 0.0


def test_a_host_that_waits_now_and_then_for_a_busy_gpu_is_no_stall() -> None:
    steps = [{**s, "forward": s["forward"] + ahead(n)} for n, s in enumerate(noisy_plan(2, 300))]
    assert pulse(recording({0: steps})) is not None, "without a GPU it is one"
    rank_facts = {100: {"cuda": {"name": "H200"}}}
    stream = [{"forward": 30, "backward": 60, "optimizer": 10}] * 300
    assert pulse(recording({0: steps}, gpu_steps={0: gpu_steps(stream)}, facts=rank_facts)) is None
    now_and_then = [{**row, "step": n} for n, row in enumerate(stream) if n % 50 < 11]
    for events in ({}, {0: gpu_steps(now_and_then)}):
        unread = pulse(recording({0: steps}, gpu_steps=events, facts=rank_facts))
        assert unread is not None and unread.share < 0.01, "quick steps make up for it"


def test_a_stall_of_the_stream_is_one_though_the_host_runs_ahead() -> None:
    steps = [{**s, "forward": s["forward"] + ahead(n)} for n, s in enumerate(noisy_plan(2, 300))]
    stream = [{"forward": 130 if n % 10 == 0 else 30, "backward": 60, "optimizer": 10} for n in range(300)]
    found = pulse(recording({0: steps}, gpu_steps={0: gpu_steps(stream)}))
    assert found is not None and found.period_steps == 10 and found.phase == "forward"
