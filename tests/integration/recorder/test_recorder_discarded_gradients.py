"""Gradients that are thrown away, in real training processes, which do not notice that they are watched."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_recorder_jobs import JOBS, run

pytestmark = pytest.mark.torch
JOB = JOBS / "competing.py"


def watched(style: str, folder: Path) -> dict[str, Any]:
    """Facts of the job, whose output is the same as without."""
    alone, watched = run(JOB.name, style), run(JOB.name, style, folder=folder)
    assert (watched.returncode, watched.stdout, watched.stderr) == (0, alone.stdout, alone.stderr)
    assert not list(folder.glob("error-*"))
    [facts] = [json.loads(path.read_text()) for path in folder.glob("facts-*.json")]
    assert not facts.get("unpatched")
    found: dict[str, Any] = facts
    return found


def line(text: str) -> int:
    return next(n for n, of in enumerate(JOB.read_text().splitlines(), 1) if of.endswith(text))


@pytest.mark.parametrize("style", ["loader", "memory"])
def test_both_passes_are_found_at_their_lines(tmp_path: Path, style: str) -> None:
    facts = watched(style, tmp_path)
    first, second = sorted(facts["discarded_gradients"], key=lambda site: site["line"])
    assert [(site["file"], site["line"], site["order"]) for site in (first, second)] == [
        (str(JOB), line("# goes on"), "upstream"),
        (str(JOB), line("# goes through"), "downstream"),
    ]
    assert first["dropped"] == first["passes"] == first["steps"] == facts["watched_gradients"] >= 12
    assert (first["elements"], first["all_elements"]) == (16 * 64 + 64, 16 * 64 + 64 + 64 * 32 + 32 + 32 + 1)
    assert first["made"]["file"] == str(JOB)


def test_a_source_that_steps_seldom_has_lost_the_gradients_of_each_step(tmp_path: Path) -> None:
    facts = watched("critics", tmp_path)
    [site] = [site for site in facts["discarded_gradients"] if site["line"] == line("# goes on")]
    assert site["dropped"] == site["passes"] == facts["watched_gradients"] >= 12


@pytest.mark.parametrize("style", ["sound", "accumulating"])
def test_what_is_used_is_not_called_thrown_away(tmp_path: Path, style: str) -> None:
    facts = watched(style, tmp_path)
    assert "discarded_gradients" not in facts and facts["watched_gradients"] >= 12
