"""Jobs that give up their rights, their root or all their descriptors: they go on as if nobody watched, and print nothing of ours."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.rings.own_folder import LOCK, hold
from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.probes.rank.layout import KIND_STEP

pytestmark = pytest.mark.torch

INJECT = Path(__file__).resolve().parents[3] / "src" / "rn50_advisor" / "probes" / "rank" / "inject"
JOB = """
import os, sys
import torch
model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.01)
def train():
    for _ in range(40):
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
if sys.argv[2] == "late":
    train()
what = sys.argv[1]
if what == "setuid":
    os.setgid(12345)
    os.setuid(12345)
elif what == "seteuid":
    os.seteuid(12345)
elif what == "chroot":
    os.chroot(sys.argv[3])
elif what == "closerange":
    os.closerange(3, 4096)
train()
# whatever has its number now is the job's
print("trained", os.open(os.devnull if what != "chroot" else "/", os.O_RDONLY))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="GIVING UP RIGHTS IS NOT TESTED: root is needed")
@pytest.mark.parametrize("when", ["early", "late"])
@pytest.mark.parametrize("what", ["setuid", "seteuid", "chroot", "closerange"])
def test_a_job_that_gives_something_up_goes_on_unnoticing(tmp_path: Path, what: str, when: str) -> None:
    folder, root = tmp_path / "rings", tmp_path / "root"
    folder.mkdir(mode=0o700)
    root.mkdir()
    lock = hold(folder)
    watched = {"RN50_ADVISOR_DIR": str(folder), "PYTHONPATH": str(INJECT)}
    command = [sys.executable, "-c", JOB, what, when, str(root)]
    done = subprocess.run(
        command, env={**os.environ, **watched}, capture_output=True, text=True, timeout=300, check=False
    )
    os.close(lock)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("trained ")
    assert not list(root.iterdir())
    names = sorted(path.name for path in folder.iterdir() if path.name != LOCK)
    if when == "late" or what == "closerange":
        [ring] = folder.glob("rank-*.ring")
        assert len(RingReader(ring).drain().rows[KIND_STEP]) >= 39
    else:
        assert names == [], "who may not write there cannot report it there either"
