"""Record of an exception that ends a training process: its phase, and the GPU's memory at that time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from test_recorder_jobs import run

pytestmark = pytest.mark.torch


def ended(folder: Path, *arguments: str) -> list[dict[str, Any]]:
    """The facts of all processes that hold an exception."""
    assert run("uncaught.py", *arguments, folder=folder).returncode == 1
    assert not list(folder.glob("error-*")), [path.read_text() for path in folder.glob("error-*")]
    written = [json.loads(path.read_text()) for path in folder.glob("facts-*.json")]
    return [facts for facts in written if "exception" in facts]


@pytest.mark.parametrize("phase", ["forward", "backward", "optimizer"])
def test_the_phase_is_kept_in_which_it_was_raised(tmp_path: Path, phase: str) -> None:
    [facts] = ended(tmp_path, phase)
    assert facts["exception"]["phase"] == phase


def test_a_spawned_rank_keeps_what_its_parent_alone_prints(tmp_path: Path) -> None:
    [rank] = [
        facts for facts in ended(tmp_path, "backward", "spawned") if facts["exception"]["type"] == "OutOfMemoryError"
    ]
    assert rank["exception"]["phase"] == "backward" and rank["optimizer"]["class"] == "Adam"
    held = rank["held_at_end"]
    assert (held["class"], held["device"], held["parameter_bytes"]) == ("Adam", "cuda:0", 0), "it trained on the CPU"
