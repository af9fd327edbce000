"""The agent is killed, stopped and starved at random moments: no job notices, and every launcher ends as its job does."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from launcher_harness import children_that_run

LAUNCHER = Path(__file__).parents[1] / "support" / "processes" / "launcher_harness.py"
JOBS = int(os.environ.get("RN50_TEST_JOBS", "20"))  # a new chance each time; more by hand
SIDE_BY_SIDE = 8
LONGEST_S = 120.0
SEED = int(os.environ.get("RN50_TEST_SEED") or random.SystemRandom().randrange(1 << 32))
OPTIONS = {"close_within_s": 5.0, "poll_s": 0.05, "period_s": 0.2}

TALKER = """
import os, sys, time
for number in range(int(sys.argv[1])):
    print(number, flush=True)
    time.sleep(0.02)
if os.fork() == 0:
    os._exit(3)
print(os.waitstatus_to_exitcode(os.wait()[1]))
sys.stderr.write("the end\\n")
sys.stderr.flush()
code = int(sys.argv[2])
if code < 0:
    os.kill(os.getpid(), -code)
sys.exit(code)
"""
TRAINING = """
import torch
torch.manual_seed(7)
model = torch.nn.Linear(16, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = torch.utils.data.DataLoader(torch.randn(256, 16), batch_size=4, num_workers=1)
for _ in range(3):
    for batch in loader:
        loss = model(batch).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex(), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Ended:
    stdout: bytes
    stderr: bytes
    returncode: int


def kill(agent: int, chance: random.Random) -> None:
    os.kill(agent, signal.SIGKILL)


def stop(agent: int, chance: random.Random) -> None:
    os.kill(agent, signal.SIGSTOP)
    time.sleep(chance.uniform(0.0, 1.0))
    os.kill(agent, chance.choice((signal.SIGCONT, signal.SIGKILL, signal.SIGSTOP)))


def starve(agent: int, chance: random.Random) -> None:
    os.setpriority(os.PRIO_PROCESS, agent, 19)
    for _ in range(chance.randrange(20)):
        os.kill(agent, signal.SIGSTOP)
        time.sleep(chance.uniform(0.0, 0.1))
        os.kill(agent, signal.SIGCONT)
        time.sleep(chance.uniform(0.0, 0.02))


def dry_out(agent: int, chance: random.Random) -> None:
    """No memory, descriptors or bytes of a file are left for it."""
    limit = chance.choice((resource.RLIMIT_AS, resource.RLIMIT_NOFILE, resource.RLIMIT_FSIZE, resource.RLIMIT_NPROC))
    most = resource.prlimit(agent, limit)[1]
    resource.prlimit(agent, limit, (chance.choice((0, 8)), most))


WAYS: Sequence[Callable[[int, random.Random], None]] = (kill, stop, starve, dry_out)


def plague(process: subprocess.Popen[bytes], chance: random.Random, over: threading.Event, *, within_s: float) -> str:
    """What happened to the agent; it may be gone first."""
    way = chance.choice(WAYS)
    after_s = chance.uniform(0.0, within_s)
    while not (agents := children_that_run(process.pid, b"recording_process")) and not over.wait(0.01):
        pass
    over.wait(after_s)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        for agent in children_that_run(process.pid, b"recording_process"):
            if agent in agents:
                way(agent, chance)
    return f"{way.__name__} after {after_s:.2f} s"


def under_chaos(command: Sequence[str], folder: Path, chance: random.Random, *, within_s: float) -> tuple[Ended, str]:
    launcher = [sys.executable, str(LAUNCHER), str(folder), repr(OPTIONS), ""]
    process = subprocess.Popen([*launcher, *command], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    applied, over = [""], threading.Event()
    plaguing = threading.Thread(target=lambda: applied.append(plague(process, chance, over, within_s=within_s)))
    plaguing.start()
    try:
        out, err = process.communicate(timeout=LONGEST_S)
    finally:
        process.kill()
        over.set()
        plaguing.join()
    return Ended(out, without_ours(err), process.returncode), applied[-1]


def without_ours(err: bytes) -> bytes:
    return b"".join(line for line in err.splitlines(keepends=True) if not line.startswith(b"rn50-advisor: "))


def alone(command: Sequence[str]) -> Ended:
    done = subprocess.run(command, capture_output=True, timeout=LONGEST_S, check=False)
    return Ended(done.stdout, done.stderr, done.returncode)


def test_no_job_notices_what_befalls_the_agent(tmp_path: Path) -> None:
    def one(number: int) -> str | None:
        chance = random.Random(SEED + number)
        code = chance.choice((0, 1, 77, -signal.SIGTERM, -signal.SIGKILL))
        command = [sys.executable, "-c", TALKER, str(chance.randrange(10, 60)), str(int(code))]
        seen, what = under_chaos(command, tmp_path / str(number), chance, within_s=2.0)
        wanted = alone(command)
        return None if seen == wanted else f"job {number}: {what}: {seen} instead of {wanted}"

    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        failures = [failure for failure in pool.map(one, range(JOBS)) if failure]
    assert not failures, f"RN50_TEST_SEED={SEED}\n" + "\n".join(failures)


@pytest.mark.torch
def test_no_training_notices_what_befalls_the_agent(tmp_path: Path) -> None:
    command = [sys.executable, "-c", TRAINING]
    wanted = alone(command)
    assert wanted.returncode == 0 and wanted.stdout.count(b"\n") == 192, wanted.stderr
    for number in range(2):
        chance = random.Random(SEED + number)
        seen, what = under_chaos(command, tmp_path / str(number), chance, within_s=6.0)
        assert seen == wanted, f"RN50_TEST_SEED={SEED}: {what}"
