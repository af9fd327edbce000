"""Evaluations that only `eval()` shows, in real training processes, which do not notice that they are watched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_recorder_jobs import JOBS, rings, run, steps

pytestmark = pytest.mark.torch
JOB = JOBS / "evaluating_by_mode.py"


def watched(style: str, folder: Path) -> tuple[dict[str, Any], list[dict[str, int]]]:
    """Facts and steps of the job, whose output is the same as without."""
    alone, watched = run(JOB.name, style), run(JOB.name, style, folder=folder)
    assert (watched.returncode, watched.stdout, watched.stderr) == (0, alone.stdout, alone.stderr)
    [facts] = [json.loads(path.read_text()) for path in folder.glob("facts-*.json")]
    return facts, [step for _, step in steps(rings(folder)[0])]


def line(text: str) -> int:
    return next(n for n, of in enumerate(JOB.read_text().splitlines(), 1) if text in of)


def test_an_evaluation_without_a_loader_is_found_at_the_line_of_the_loop(tmp_path: Path) -> None:
    facts, found = watched("memory", tmp_path)
    [site] = facts["evaluation_sites"]
    assert (site["file"], site["line"], site["count"]) == (str(JOB), line("# the line of the loop"), 6)
    evaluated = [step for step in found if step["evaluation_ns"]]
    assert len(evaluated) == 6
    for step in evaluated:  # twenty passes over all inputs, and one over eight of them
        assert step["evaluation_ns"] > step["forward_ns"] > 0
        assert sum(step[f"{phase}_ns"] for phase in PHASES) == step["t_end_ns"] - step["t_start_ns"]


def test_each_of_two_evaluations_in_a_step_is_found_and_training_mode_ends_the_last(tmp_path: Path) -> None:
    facts, found = watched("twice", tmp_path)
    first, second = facts["evaluation_sites"]
    assert [first["line"], second["line"]] == [line("# the first one"), line("# the second one")]
    assert first["count"] == second["count"] >= 55
    later = found[10:-1]
    assert len(later) >= 45 and all(step["evaluation_ns"] and step["forward_ns"] for step in later)
    assert len({step["forward_ns"] for step in later}) > 1, "measured, not taken over from the step before"


PHASES = ("input_wait", "forward", "backward", "clip", "optimizer", "gap", "evaluation", "checkpoint")


@pytest.mark.parametrize(("style", "graphs"), [("graphs", 48), ("late", 0)])
def test_gradients_of_an_evaluation_are_seen_where_they_are_recorded(tmp_path: Path, style: str, graphs: int) -> None:
    facts, found = watched(style, tmp_path)
    assert facts["evaluation_batches"] == [48, graphs]
    assert [step["micro_batches"] for step in found if step["evaluation_ns"]] == [0] * 6
    assert [site["line"] for site in facts["evaluation_sites"]] == [line("            validate(style)")]


@pytest.mark.parametrize("style", ["teacher", "frozen", "rollout"])
def test_that_mode_alone_is_no_evaluation(tmp_path: Path, style: str) -> None:
    facts, found = watched(style, tmp_path)
    assert facts["evaluation_sites"] == []
    assert len(found) >= 55
    assert not any(step["evaluation_ns"] for step in found)
