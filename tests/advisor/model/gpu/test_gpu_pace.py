"""Calls that wait for the GPU as one would write them, and the forward time that no backward explains."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.gpu.gpu_pace import Wait, long_backward, long_forward


@pytest.mark.parametrize(
    ("forward", "backward", "beyond"), [(0.3, 0.6, 0.0), (0.5, 0.6, 0.2), (0.1, 0.6, 0.0), (0.4, 0.0, 0.4)]
)
def test_a_forward_is_long_beyond_half_of_its_backward(forward: float, backward: float, beyond: float) -> None:
    assert long_forward(forward, backward) == pytest.approx(beyond)


@pytest.mark.parametrize(("forward", "backward", "beyond"), [(0.48, 1.0, 0.0), (0.24, 0.8, 0.3), (0.3, 0.6, 0.0)])
def test_a_backward_is_long_beyond_twice_its_forward_and_a_little(
    forward: float, backward: float, beyond: float
) -> None:
    assert long_backward(forward, backward) == pytest.approx(beyond)


@pytest.mark.parametrize(
    ("call", "words"),
    [("item", ".item()"), ("cpu", ".cpu()"), ("__bool__", "a comparison or `if`"), ("__float__", "float()")],
)
def test_a_wait_is_named_by_the_call_as_users_write_it(call: str, words: str) -> None:
    assert Wait(0, call, "train.py", 88, "train", "", "gap", 1.0, 1.0, 0.3).words == words
