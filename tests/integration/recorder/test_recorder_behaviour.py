"""Loading with and without the recorder: what a job sees of its batches, random numbers, errors and workers is the same."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest
from test_recorder_jobs import rings, run, steps

pytestmark = pytest.mark.torch

OWN = ("_rn50_advisor_rank", "sitecustomize")
# modules of the standard library that the recorder may bring into a worker
NEEDED_MAX = 8


# Where a worker's error is met depends on which worker was first: torch looks at what has come before it waits for more.
MET = re.compile(r"line \d+, in _next_data\n.*\n(?: +[\^~]+\n)?")


def comparable_lines(output: str) -> list[str]:
    return MET.sub("in _next_data\n", output).splitlines()


def test_samples_dice_errors_and_workers_are_those_of_the_job_alone(tmp_path: Path) -> None:
    folder = tmp_path / "rings"
    folder.mkdir(mode=0o700)
    alone = run("behaviour.py", tmp_path / "alone")
    watched = run("behaviour.py", tmp_path / "watched", folder=folder)
    assert alone.returncode == watched.returncode == 0, watched.stderr
    lines, lines_watched = comparable_lines(alone.stdout), comparable_lines(watched.stdout)
    assert len(lines) > 60 and sum("ValueError: a broken" in line for line in lines) >= 4
    for line, line_watched in zip(lines, lines_watched, strict=True):
        assert line_watched == line
    started = [line for line in lines if line.startswith("<class")]
    assert sum(line.endswith("None [True, True]") for line in started) == 2, "they live before a batch is asked for"
    assert sum(line.endswith("6 [True, True]") for line in started) == 2
    assert len(steps(rings(folder)[0])) >= 30, "it was watched indeed"
    (threads, modules), (threads_watched, modules_watched) = (
        json.loads((tmp_path / name).read_text()) for name in ("alone", "watched")
    )
    assert threads_watched == threads
    added = {name for name in set(modules_watched) - set(modules) if not name.startswith(OWN)}
    assert added <= set(sys.stdlib_module_names) and len(added) <= NEEDED_MAX, added
    assert not set(modules) - set(modules_watched)
