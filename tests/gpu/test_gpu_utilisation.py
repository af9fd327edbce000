"""The check of three readings of a GPU's utilisation, on made-up runs: it must notice what is missing and what contradicts itself."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

CHECK = runpy.run_path(str(Path(__file__).resolve().parents[1] / "gpu" / "utilisation_check.py"))
RUNS = Path(__file__).resolve().parents[2] / "samples" / "runs"
ROW = {"batch": 32.0, "step_ms": 13.0, "utilisation": 0.95, "busy": 0.9, "idle between steps": 0.05, "SMs": 0.6}


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"SMs": None}, []),  # a GPU before Hopper
        ({"utilisation": 0.82}, []),  # not of the same moment
        ({"utilisation": 0.7}, ["kernels ran for longer than utilisation says"]),
        ({"utilisation": None}, ["no utilisation"]),
        ({"busy": None}, ["no busy"]),
        ({"idle between steps": None}, ["no idle between steps"]),
        ({"idle between steps": 0.3}, ["busy and idle time are more than the step"]),
        ({"utilisation": 0.85, "SMs": 0.97}, ["SMs had work for longer than utilisation says"]),
    ],
)
def test_readings_must_not_contradict_each_other(changes: dict[str, float | None], found: list[str]) -> None:
    assert CHECK["contradictions"](ROW | changes) == found


def test_the_readings_of_runs_stand_side_by_side(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Of runs without a profiler window, which is what they lack."""
    runs = [RUNS / "item-each-step.tar.gz", RUNS / "8xH100.tar.gz"]
    assert CHECK["main"](tmp_path / "rows.json", runs) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.startswith("batch 256: step_ms ") and line.endswith("; no busy") for line in lines] == [True, True]
    first, _ = json.loads((tmp_path / "rows.json").read_text())
    assert 0 < first["utilisation"] <= 1 and 0 < first["SMs"] <= 1 and first["at the host's pace"] is not None


def test_no_run_is_no_success(tmp_path: Path) -> None:
    assert CHECK["main"](tmp_path / "rows.json", []) == 1
