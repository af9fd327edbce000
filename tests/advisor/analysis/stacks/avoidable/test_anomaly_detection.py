"""What anomaly detection does in a step: tracebacks that samples saw, and gradients that were searched."""

from __future__ import annotations

from typing import Any

import pytest

from profiled_steps import LIBRARY, SCRIPT, looks, profile
from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis

FORMATTING = (
    ("forward", f"{LIBRARY}/torch/nn/modules/linear.py", 120),
    ("format_stack", "/usr/lib/python3.11/traceback.py", 213),
    ("checkcache", "/usr/lib/python3.11/linecache.py", 72),
)
TRAINING = ("train", SCRIPT, 20)


def seen(*rows: dict[str, Any], backward_nodes: dict[str, Any] | None = None) -> Analysis:
    """Steps of 130 ms with a forward pass of 10."""
    nodes = {} if backward_nodes is None else {"backward_nodes": backward_nodes}
    return analyse(recording({0: plan(60, backward=60)}, events=(profile(*rows),), facts={100: nodes}))


def test_formatting_is_what_samples_find_in_the_modules_that_format() -> None:
    a = seen(looks(4, TRAINING, *FORMATTING), looks(396, TRAINING))
    assert a.value("step.tracebacks_s", 0) == pytest.approx(0.01 * a.value("step.time_s"))
    assert seen(looks(400, TRAINING)).value("step.tracebacks_s", 0) == 0.0


def test_it_takes_no_more_than_the_forward_pass() -> None:
    a = seen(looks(400, TRAINING, *FORMATTING))
    assert a.value("step.tracebacks_s", 0) == pytest.approx(a.model.own[0]["forward"])


def test_few_samples_show_nothing() -> None:
    reasons = dict(seen(looks(50, TRAINING, *FORMATTING)).reasons)
    assert "no profile" in reasons["step.tracebacks_s", 0]


def test_elements_are_those_of_a_pass() -> None:
    nodes = {"passes": 2, "ns": 100, "classes": [], "searched": 6_000}
    assert seen(backward_nodes=nodes).value("step.searched_elements", 0) == 3_000
    del nodes["searched"]
    for unknown in (nodes, None):
        assert "node by node" in dict(seen(backward_nodes=unknown).reasons)["step.searched_elements", 0]
