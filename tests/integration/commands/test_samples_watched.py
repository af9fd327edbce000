"""The sample training script under the advisor, with spawned ranks: a whole budget for each, and what holds them back.

Other tests say the same of plain python (test_edits_applied.py) and of torchrun (test_faults.py, `in-process`).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli_process import advisor

pytestmark = [pytest.mark.torch, pytest.mark.alone]

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
RANKS = 2
SPAWN = (sys.executable, str(SAMPLES / "train_spawn.py"), "--processes", str(RANKS), "--")
# Decoding a picture takes as long as computing four of this size.
JOB = (
    "--device",
    "cpu",
    "--model",
    "squeezenet1_1",
    "--image-size",
    "32",
    "--batch-size",
    "4",
    "--workers",
    "0",
    "--no-eval",
)
STEPS = 40


def test_spawned_ranks_get_a_whole_budget_and_a_cause(tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    make = [sys.executable, str(SAMPLES / "make_images.py"), str(pictures), "--classes", "2", "--per-class", "40"]
    subprocess.run([*make, "--val-per-class", "1"], check=True)
    options = ("run", "--no-tui", "--run-dir", tmp_path / "runs", "--report", tmp_path / "report.json", "--")
    job = (*SPAWN, *JOB, "--data", str(pictures), "--steps", str(STEPS))
    done = advisor(*options, *job, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads((tmp_path / "report.json").read_text())
    assert sorted(report["budget"]["per_rank"]) == [str(rank) for rank in range(RANKS)]
    for phases in (report["budget"]["critical"], *report["budget"]["per_rank"].values()):
        assert phases["unattributed"] <= 0.05 * sum(phases.values())
    assert "DAT003" in [finding["rule"] for finding in report["findings"]]
    assert not [gap for gap in report["gaps"] if gap["metric"].startswith("ring")]
