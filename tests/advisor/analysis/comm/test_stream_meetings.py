"""Waits of a GPU for collectives called from Python, timed in some steps: what is own work, whose lateness, and what the wire takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import MS, plan, recording, table
from rn50_advisor.advisor.analysis.comm.stream_meetings import waits_on_stream
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS, GPU_STEP_FIELDS

STEPS = 60
OWN = {"input_wait": 0.0, "forward": 30.0, "backward": 50.0, "optimizer": 10.0, "gap": 0.0}
UNKNOWN = {"least_met_ns": -1, "allocated_bytes": -1, "reserved_bytes": -1, "peak_bytes": -1, "alloc_retries": -1}
Waits = Callable[[int], tuple[float, float]]


def gpu(own: dict[str, float], waits: Waits, *, timed_every: int = 4) -> Table:
    """Steps whose passes take as long as the GPU computes and waits in them; some of these waits are timed."""
    rows = []
    for n in range(STEPS):
        forward, backward = waits(n)
        spent = {**own, "forward": own["forward"] + forward, "backward": own["backward"] + backward}
        met = {"meetings": 4, "forward_met_ns": round(forward * MS), "backward_met_ns": round(backward * MS)}
        unmet = {"meetings": -1, "forward_met_ns": -1, "backward_met_ns": -1, "optimizer_met_ns": -1}
        times = {f"{phase}_ns": round(ms * MS) for phase, ms in spent.items()}
        rows.append({"step": n, **UNKNOWN, **times, **(met if n % timed_every == 1 else unmet)})
    return table((*GPU_STEP_FIELDS, "flags"), rows)


def run(ranks: dict[int, tuple[dict[str, float], Waits]], *, norms: bool = True, **more: Any) -> Recording:
    plans = {}
    for rank, (own, waits) in ranks.items():
        longer = [waits(n) for n in range(STEPS)]
        plans[rank] = [
            {
                **step,
                "input_wait": 0,
                "forward": own["forward"] + f,
                "backward": own["backward"] + b,
                "optimizer": own["optimizer"],
            }
            for step, (f, b) in zip(plan(STEPS), longer, strict=True)
        ]
    call = {"calls": 4, "on_device": 4, "norm_calls": 4 * norms, "group_size": 2}
    called = table((*COLLECTIVES_FIELDS, "flags"), [{"step": n, **call} for n in range(STEPS)])
    made = recording(
        plans,
        ddp=False,
        gpu_steps={rank: gpu(own, waits) for rank, (own, waits) in ranks.items()},
        collectives=dict.fromkeys(ranks, called),
        facts={100 + rank: {"cuda": {"device": rank, "name": "A100"}} for rank in ranks},
    )
    return replace(made, **more)


def always(forward: float, backward: float) -> Waits:
    return lambda _: (forward, backward)


def test_what_every_rank_waits_for_is_the_wire() -> None:
    analysis = analyse(run(dict.fromkeys((0, 1), (OWN, always(2, 40)))))
    assert analysis.get("comm.wire_s") == pytest.approx(0.042, rel=0.01)
    assert analysis.budget.critical["backward"] == pytest.approx(0.050, rel=0.01)
    assert analysis.budget.critical["comm_exposed"] == pytest.approx(0.042, rel=0.01)
    assert analysis.by_rank("collectives.stream_s") == {rank: pytest.approx(0.042) for rank in (0, 1)}
    assert analysis.get("collectives.norm_s") == pytest.approx(0.004), "in the backward pass they wait behind gradients"


def test_collectives_that_are_mostly_no_norms_are_not_theirs() -> None:
    analysis = analyse(run(dict.fromkeys((0, 1), (OWN, always(2, 40))), norms=False))
    assert analysis.get("comm.wire_s") == pytest.approx(0.042, rel=0.01)
    assert analysis.get("collectives.norm_s") is None


def test_a_rank_for_which_the_others_wait_amid_their_passes_is_the_late_one() -> None:
    slow = {**OWN, "forward": 45.0, "backward": 75.0}
    analysis = analyse(run({0: (OWN, always(16, 26)), 1: (slow, always(1, 1))}))
    assert analysis.get("comm.wire_s") == pytest.approx(0.002, abs=2e-4)
    assert analysis.by_rank("comm.late_share") == {0: 0.0, 1: pytest.approx(1.0)}
    assert analysis.by_rank("step.compute_s") == {0: pytest.approx(0.090, rel=0.01), 1: pytest.approx(0.130, rel=0.01)}


@pytest.mark.parametrize(("least_ms", "wire_ms"), [(1.0, 4.0), (0.5, 2.0), (-1.0, 12.0)])
def test_ranks_that_are_last_in_turn_are_no_wire(least_ms: float, wire_ms: float) -> None:
    """Two norms: each rank waits 3 ms for each call of either pass, but the one that comes last waits for `least_ms` alone."""
    made = run(dict.fromkeys((0, 1), (OWN, always(6, 6))))
    for rows in made.gpu_steps.values():
        rows["least_met_ns"] = np.where(rows["meetings"] >= 0, round(least_ms * MS), -1)
    analysis = analyse(made)
    assert analysis.get("comm.wire_s") == pytest.approx(wire_ms / 1000, abs=2e-4)
    assert analysis.get("collectives.norm_s") == pytest.approx(wire_ms / 1000, abs=2e-4)


def test_waiting_for_loaders_in_the_first_norms_is_not_the_norms_time() -> None:
    """Two norms: ranks whose batches come last in turn keep the others waiting in the forward pass, and meet at once in backward."""
    made = run(dict.fromkeys((0, 1), (OWN, always(6, 2))))
    for rows in made.gpu_steps.values():
        rows["least_met_ns"] = np.where(rows["meetings"] >= 0, MS, -1)
    assert analyse(made).get("collectives.norm_s") == pytest.approx(0.004, abs=2e-4)


def test_gradients_that_norms_wait_behind_are_not_taken_for_turns() -> None:
    made = run(dict.fromkeys((0, 1), (OWN, always(6, 40))))
    for rows in made.gpu_steps.values():
        rows["least_met_ns"] = np.where(rows["meetings"] >= 0, MS, -1)
    assert analyse(made).get("comm.wire_s") == pytest.approx(0.038, abs=2e-4), "4 ms of turns in each pass"


def test_without_the_times_nothing_is_said_of_the_wire() -> None:
    made = run(dict.fromkeys((0, 1), (OWN, always(2, 40))))
    older = {}
    for rank, rows in made.gpu_steps.items():
        older[rank] = rows.copy()
        older[rank]["meetings"] = -1
    analysis = analyse(replace(made, gpu_steps=older))
    assert analysis.get("comm.wire_s") is None and analysis.by_rank("collectives.stream_s") == {}


def split(waits: Waits, own: Callable[[int], float] = lambda _: 50.0) -> Any:
    """Seconds of waiting in the backward pass of each step, as far as they are inferred."""
    made = run(dict.fromkeys((0, 1), (OWN, waits)))
    steps = all_steps(made)[0]
    backward = np.array([own(n) + waits(n)[1] for n in range(STEPS)]) / 1000
    phases = {"forward": np.full(STEPS, 0.032), "backward": backward, "optimizer": np.full(STEPS, 0.010)}
    found = waits_on_stream(steps, made.gpu_steps[0], phases)
    assert found is not None
    return found[0]["backward"]


def test_steps_without_times_wait_for_as_long_as_they_exceed_the_gpus_own_work() -> None:
    waits = split(lambda n: (2, 60 if n % 5 == 0 else 1))
    assert waits[[n for n in range(STEPS) if n % 5 == 0]] == pytest.approx(0.060, abs=0.002)
    assert waits[[n for n in range(STEPS) if n % 5]] == pytest.approx(0.001, abs=0.002)


def test_batches_of_different_size_do_not_look_like_waiting() -> None:
    waits = split(lambda n: (2, 10), own=lambda n: 30.0 + 40.0 * (n * 7 % 10) / 10)
    assert waits.mean() == pytest.approx(0.010, abs=0.001)
    assert waits.max() < 0.016
