"""With real PyTorch in the job: the recorder gets in, and the job trains on when the advisor is killed."""

from __future__ import annotations

import contextlib
import signal
import subprocess
from pathlib import Path

import pytest

from launcher_harness import is_gone, killed_at_end, launch, python, read_until
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import wait_for

TRAINING = """
import os, sys, torch
torch.set_num_threads(1)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader([(torch.ones(4), 1)] * 64, batch_size=8)
def epoch():
    for x, y in loader:
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
        optimizer.zero_grad()
epoch()
os.write(1, b'pid %d\\n' % os.getpid())
sys.stdin.readline()
epoch()
os.write(1, b'trained to the end\\n')
"""


def recorded_steps(run_folder: Path) -> Recording | None:
    with contextlib.suppress(NotARun):
        recording = read_recording(run_folder)
        return recording if recording.steps else None
    return None


@pytest.mark.torch
@pytest.mark.parametrize("killed", [False, True], ids=["left alone", "advisor killed"])
def test_a_training_job_ends_normally_and_its_run_is_readable(run_folder: Path, killed: bool) -> None:
    process = launch(run_folder / "r", python(TRAINING), stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    with killed_at_end(process):
        assert process.stdin is not None and process.stdout is not None
        job = int(read_until(process.stdout.fileno(), b"\n").split()[1])
        wait_for(lambda: recorded_steps(run_folder / "r"), "recorded steps")
        if killed:
            process.send_signal(signal.SIGKILL)
            process.wait()
            assert not is_gone(job)
        process.stdin.write(b"\n")
        process.stdin.flush()
        read_until(process.stdout.fileno(), b"trained to the end\n")
        wait_for(lambda: is_gone(job), "the end of the job")
        assert killed or process.wait() == 0
    recording = read_recording(run_folder / "r")
    assert len(recording.steps[0]) >= (7 if killed else 15)
    assert recording.facts[job]["loaders"][0]["batch_size"] == 8
    assert (recording.meta.ended_ns is None) == killed
