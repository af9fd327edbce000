"""Exposed communication in the account differs by at most 5 % from DDP's own stamps in real ranks."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

from cli_process import advisor
from rn50_advisor.advisor.analysis.comm.buffer_waits import accounted_steps
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import steady_steps
from rn50_advisor.advisor.store.run_reader import read_recording

pytestmark = [pytest.mark.torch, pytest.mark.alone]

JOB = Path(__file__).resolve().parents[2] / "jobs" / "stamped.py"
AGREE = 0.05


@pytest.mark.parametrize("late_ms", [0, 20])
def test_the_exposed_wire_is_what_ddp_stamped(tmp_path: Path, late_ms: int) -> None:
    job = (sys.executable, str(JOB), str(tmp_path), str(late_ms))
    done = advisor("run", "--no-tui", "--run-dir", "runs", "--", *job, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (folder,) = (tmp_path / "runs").glob("*")
    recording = read_recording(folder)
    stamps = [
        {start: times for start, *times in json.loads((tmp_path / f"stamps-{n}.json").read_text())} for n in (0, 1)
    ]
    steady = steady_steps(accounted_steps(recording))
    first, last = int(steady[0].step[0]), int(steady[0].step[-1])
    # by the start of the backward pass: while both read the stamps, DDP's count of iterations may move on between them
    read = [
        {
            int(row["step"]): stamps[n][int(row["backward_start_ns"])]
            for row in recording.comm[n]
            if first <= row["step"] <= last
        }
        for n in (0, 1)
    ]
    both = sorted(read[0].keys() & read[1].keys())
    assert len(both) >= 10, "DDP stamped few steps, or they were not read"
    exposed = np.array([[comm - hidden for comm, hidden in (read[n][step] for step in both)] for n in (0, 1)]) / 1e9
    analysis = analyse(recording)
    assert analysis.value("comm.wire_s") == pytest.approx(float(exposed.min(axis=0).mean()), rel=AGREE)
    if late_ms:
        assert analysis.by_rank("comm.late_share")[1] > 0.9
        assert exposed[0].mean() > 0.015, "the other rank waits in its backward"
