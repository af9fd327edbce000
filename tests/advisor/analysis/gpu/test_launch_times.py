"""What the host takes for a step by itself, from steps in which it is not stopped by a full queue."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from recordings import gpu_steps, plan, recording, step
from rn50_advisor.advisor.analysis.gpu.launch_times import host_step_values, launching_throughout
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites, HostCopy, Wait
from rn50_advisor.advisor.model.recording import Recording

# The GPU computes for 90 ms. The host launches in 8 + 12 + 1 ms, and is stopped in the backward pass while its queue is full.
GPU = {"forward": 30, "backward": 55, "optimizer": 5}
FREE = {"input_wait": 0, "forward": 8, "backward": 12, "optimizer": 1, "gap": 1}
STOPPED = {"input_wait": 0, "forward": 30, "backward": 55, "optimizer": 5, "gap": 0}


def job(*, reads_every: int = 10, free: Mapping[str, float] = FREE, steps: int = 60) -> Recording:
    """After each read the queue is empty: two steps are launched freely, then the host goes at the GPU's pace."""
    host = [step(**(free if reads_every and n % reads_every in (0, 1) else STOPPED)) for n in range(steps)]
    gpu = [{"input_wait": 0.1 if reads_every and n % reads_every == 0 else 0, "gap": 0, **GPU} for n in range(steps)]
    return recording({0: host}, gpu_steps={0: gpu_steps(gpu)})


def own_s(made: Recording, known: CallSites | None = None) -> float | None:
    return host_step_values(made, steady_steps(all_steps(made)), known or CallSites()).get(("gpu.host_step_s", 0))


def test_phases_after_a_read_show_what_the_host_takes() -> None:
    assert own_s(job()) == pytest.approx(0.021, abs=0.001)


def test_a_host_that_is_always_stopped_says_nothing() -> None:
    assert own_s(job(reads_every=0)) is None


def test_a_queue_that_fills_within_the_first_pass_says_nothing() -> None:
    made = job(reads_every=0)
    after_read = [{"input_wait": 0.1 if n % 10 == 0 else 0, "gap": 0, **GPU} for n in range(60)]
    filling = recording(
        {0: [step(**{**STOPPED, "forward": 8 if n % 10 == 0 else 30}) for n in range(60)]},
        gpu_steps={0: gpu_steps(after_read)},
    )
    assert own_s(made) is None and own_s(filling) is None


def test_a_host_that_never_gets_ahead_takes_what_its_steps_take() -> None:
    host = {"input_wait": 0, "forward": 20, "backward": 30, "optimizer": 5, "gap": 1}
    made = recording(
        {0: plan(40, **host)},
        gpu_steps={0: gpu_steps([{"input_wait": 0.1, "forward": 20, "backward": 30, "optimizer": 5, "gap": 1}] * 40)},
    )
    assert own_s(made) == pytest.approx(0.056)


def test_steps_that_wait_for_the_gpu_by_a_call_say_nothing_of_launches() -> None:
    waits = (Wait(0, "item", "/job/train.py", 88, "train", "", "forward", 1.0, 1.0, 0.02),)
    copies = (HostCopy(0, "to", "/job/train.py", 80, 30.0, False, False, False, "forward", 0.01, 0.01),)
    assert own_s(job(), CallSites(waits, ())) is None
    assert own_s(job(), CallSites((), copies)) is None


@pytest.mark.parametrize(("share", "found"), [(0.95, True), (0.92, False)])
def test_a_host_that_takes_the_whole_step_to_launch_it_sets_the_pace(share: float, found: bool) -> None:
    """Its GPU is held in collectives by other ranks, so that its queue does not run dry."""
    made = recording({0: plan(40, input_wait=5, forward=30, backward=50, optimizer=10, gap=5)})
    made = replace(
        made,
        gpu_steps={0: gpu_steps([{"input_wait": 0, "forward": 35, "backward": 55, "optimizer": 10, "gap": 0}] * 40)},
    )
    steady = steady_steps(all_steps(made))
    values = launching_throughout(made, steady, {0: share * 0.1})
    assert values.by_rank("gpu.host_paced_s") == ({0: pytest.approx(0.090)} if found else {})
