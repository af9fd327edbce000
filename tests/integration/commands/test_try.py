"""`try` on a real job: its advice is measured, its files stay as they are, and nothing of it is left running."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

SLEEPING_DATA = """
import time
import torch

class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 1 << 20

    def __getitem__(self, index):
        time.sleep(0.005)
        return torch.zeros(64)

loader = torch.utils.data.DataLoader(Items(), batch_size=8, num_workers=0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for number, batch in enumerate(loader):
    optimizer.zero_grad()
    loss = model(batch).square().mean()
    loss.backward()
    optimizer.step()
    torch.save(model.state_dict(), "checkpoint.pt")
    print(number, file=open("log.txt", "a"))
"""


def state(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*") if path.is_file()}


def test_a_slow_data_set_gets_a_worker_and_no_file_of_the_job_changes(tmp_path: Path) -> None:
    job = tmp_path / "job"
    job.mkdir()
    (job / "train.py").write_text(SLEEPING_DATA)
    (job / "checkpoint.pt").write_bytes(b"the user's own")
    before = state(job)
    result = tmp_path / "tried.json"
    command = [sys.executable, "-m", "rn50_advisor.advisor.cli", "try", "--budget", "120s", "-o", str(result)]
    environment = {**os.environ, "OWNER_OF_THIS_TEST": str(os.getpid()), "XDG_STATE_HOME": str(tmp_path / "state")}
    done = subprocess.run(
        [*command, "--", sys.executable, "train.py"],
        cwd=job,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    tried = json.loads(result.read_text())
    assert tried["schema"] == "rn50-advisor/try/1"
    [workers] = [trial for trial in tried["trials"] if trial["rule"] == "DAT003"]
    assert workers["outcome"] == "faster", workers
    assert tried["best"] == "DAT003"
    assert workers["measured"]["lo"] > 1.2, "a worker sleeps while the model computes"
    assert state(job) == before
    kept = (tmp_path / "state" / "rn50-advisor" / "trials.jsonl").read_text()
    assert '"DAT003"' in kept and str(job) not in kept
    mark = b"OWNER_OF_THIS_TEST=%d" % os.getpid()
    left = [
        process for process in psutil.process_iter() if process.pid != os.getpid() and mark in _environment(process)
    ]
    assert left == []


def _environment(process: psutil.Process) -> list[bytes]:
    try:
        return Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return []
