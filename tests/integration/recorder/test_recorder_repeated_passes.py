"""Backward passes that go through one graph again, in real training processes, which do not notice that they are watched."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_recorder_discarded_gradients import JOB, line, watched

pytestmark = pytest.mark.torch


def test_passes_for_each_loss_are_found_at_their_line(tmp_path: Path) -> None:
    facts = watched("losses", tmp_path)
    found = facts["repeated_passes"]
    assert (found["steps"], found["repeating"], found["passes"], found["again"]) == (3, 3, 9, 6)
    assert found["lines"] == [{"file": str(JOB), "line": line("# for each loss"), "passes": 9}]
    whole, again = found["products"]
    assert 3 * again == 2 * whole, "nothing but the network multiplies"
    assert 0 < facts["backward_nodes"]["again_ns"] < facts["backward_nodes"]["ns"]


@pytest.mark.parametrize(("style", "passes"), [("views", 3), ("sound", 2), ("accumulating", 4)])
def test_passes_through_graphs_of_their_own_repeat_nothing(tmp_path: Path, style: str, passes: int) -> None:
    facts = watched(style, tmp_path)
    found = facts["repeated_passes"]
    assert found["steps"] >= 2
    assert (found["passes"], found["again"], found["lines"]) == (passes * found["steps"], 0, [])
    assert facts["backward_nodes"]["again_ns"] == 0
