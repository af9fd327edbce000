"""Real jobs of which only some steps leave marks, and the report on the rest."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from rn50_advisor.advisor.analysis.steps.seen_training import unseen_runs
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose

pytestmark = pytest.mark.torch

JOB = Path(__file__).resolve().parents[2] / "jobs" / "unseen_training.py"
ADVISOR = Path(sys.executable).with_name("rn50-advisor")


def record(folder: Path, *arguments: object) -> tuple[Recording, Report]:
    command = [str(ADVISOR), "run", "--no-tui", "--run-dir", str(folder), "--", sys.executable, str(JOB)]
    done = subprocess.run([*command, *map(str, arguments)], capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr
    (run,) = (path.parent for path in folder.glob("*/run.sqlite"))
    made = read_recording(run)
    return made, diagnose(made)


@pytest.mark.parametrize("kind", ["replay", "autograd_grad", "replay_from_another_loader"])
def test_a_dozen_steps_and_then_batches_that_meet_no_backward_are_no_verdict(tmp_path: Path, kind: str) -> None:
    _, report = record(tmp_path, kind, 12, 150)
    assert (report.verdict.state, report.verdict.title) == ("inconclusive", "Most of the training was not observed")
    assert "150 batches" in report.verdict.summary
    assert all(finding.saving is None for finding in report.findings)


def test_a_graph_that_is_replayed_without_a_loader_is_no_verdict(tmp_path: Path) -> None:
    _, report = record(tmp_path, "replay_in_memory", 12, 400)
    assert (report.verdict.state, report.verdict.title) == ("inconclusive", "Most of what the job did was not observed")


@pytest.mark.parametrize("kind", ["inference", "train_accuracy"])
def test_an_evaluation_after_training_is_known_as_one(tmp_path: Path, kind: str) -> None:
    made, report = record(tmp_path, kind, 60, 200)
    assert unseen_runs(made.spans.get(0)).size == 0
    tail = made.steps[0][-1]
    assert tail["evaluation_ns"] > 0.8 * (tail["t_end_ns"] - tail["t_start_ns"])
    assert "not seen" not in report.verdict.title and "no backward pass was seen" not in report.verdict.summary


def test_batches_skipped_at_a_resume_are_recorded_as_such(tmp_path: Path) -> None:
    made, report = record(tmp_path, "resume", 60, 1000)
    assert unseen_runs(made.spans[0], "skipped")["count"].tolist() == [1000]
    assert unseen_runs(made.spans[0]).size == 0
    assert np.sum(made.steps[0]["evaluation_ns"]) == 0
    assert "not seen" not in report.verdict.title
