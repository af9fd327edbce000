"""Backward passes that recorders timed node by node, by rank and as seconds per step."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import MODULE, SCRIPT, looks
from recordings import plan, recording
from rn50_advisor.advisor.analysis.comm.buffer_waits import accounted_steps
from rn50_advisor.advisor.analysis.stacks.timed_passes import before_backward, every_timed_pass, timed_passes
from rn50_advisor.advisor.analysis.steps.steady_state import steady_steps
from rn50_advisor.advisor.model.recording import Recording

TIMED = {"passes": 3, "ns": 2_000_000, "classes": []}
BACKWARD = ("Tensor.backward", "/env/torch/_tensor.py", 500)


def of(**facts: Any) -> Recording:
    return recording({0: plan(40)}, facts={100: facts})


def test_a_timed_pass_has_the_seconds_of_a_step_for_each_of_its_ns() -> None:
    run = of(backward_nodes=TIMED)
    steady = steady_steps(accounted_steps(run))
    ((rank, timed, each_s),) = timed_passes(run, steady)
    backward_s = steady[0].per_step("backward")
    assert rank == 0 and timed == TIMED and backward_s and each_s * TIMED["ns"] == pytest.approx(backward_s)  # type: ignore[operator]
    assert every_timed_pass(run) == [TIMED]


@pytest.mark.parametrize("facts", [{}, {"backward_nodes": {**TIMED, "ns": 0}}])
def test_without_a_timed_pass_there_is_none(facts: dict[str, Any]) -> None:
    run = of(**facts)
    assert list(timed_passes(run, steady_steps(accounted_steps(run)))) == [(0, None, 0.0)]


def test_frames_of_a_backward_pass_are_left_out() -> None:
    forward = looks(1, ("train", SCRIPT, 3), MODULE)
    assert [frame["function"] for frame in before_backward(forward)][-2:] == ["train", "<module>"]
    assert before_backward(looks(1, ("train", SCRIPT, 4), BACKWARD)) == ()
