"""If `try` is killed, its jobs end, also those that rest; nothing else does."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rn50_advisor.advisor.run.launch.job_environment import FOLDER_VARIABLE
from rn50_advisor.advisor.trials.keeper import Keeper, ring_folder_of
from waiting import wait_for

# A recording process with a job below it, which starts one that leaves its tree.
FAMILY = (
    "import subprocess, sys, time\n"
    "far = 'import time; time.sleep(600)'\n"
    "job = f'import subprocess, sys, time; subprocess.Popen([sys.executable, \"-c\", {far!r}], start_new_session=True); time.sleep(600)'\n"
    "subprocess.Popen([sys.executable, '-c', job])\n"
    "time.sleep(600)\n"
)
KILLED = (
    "import os, signal, sys\n"
    "from rn50_advisor.advisor.trials.keeper import Keeper\n"
    "keeper = Keeper()\n"
    "keeper.watch(int(sys.argv[1])); keeper.watch(int(sys.argv[2])); keeper.forget(int(sys.argv[2]))\n"
    "os.kill(os.getpid(), signal.SIGKILL)\n"
)


@pytest.fixture
def families() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen([sys.executable, "-c", FAMILY]) for _ in range(2)]
    known = [psutil.Process(one.pid) for one in started]
    for one in known:
        wait_for(lambda one=one: len(one.children(recursive=True)) == 2, "a job and what left it")  # type: ignore[misc]
    members = [member for one in known for member in (*one.children(recursive=True), one)]
    yield started
    for member in members:
        if member.is_running():
            member.kill()
    for each in started:
        each.wait()


def stopped_and_gone(process: psutil.Process) -> bool:
    return not process.is_running() or process.status() == psutil.STATUS_ZOMBIE


def test_what_is_watched_ends_with_all_it_started_and_what_is_forgotten_goes_on(
    families: list[subprocess.Popen[bytes]],
) -> None:
    watched, forgotten = (psutil.Process(one.pid) for one in families)
    members = [watched, *watched.children(recursive=True)]
    others = [forgotten, *forgotten.children(recursive=True)]
    for member in members:
        member.send_signal(signal.SIGSTOP)
    done = subprocess.run([sys.executable, "-c", KILLED, str(watched.pid), str(forgotten.pid)], check=False)
    assert done.returncode == -signal.SIGKILL
    wait_for(lambda: all(map(stopped_and_gone, members)), "their end")
    assert all(other.is_running() for other in others)


def test_a_keeper_that_is_no_longer_needed_ends_and_touches_nothing(families: list[subprocess.Popen[bytes]]) -> None:
    keeper = Keeper()
    keeper.watch(families[0].pid)
    keeper.forget(families[0].pid)
    keeper.close()
    assert families[0].poll() is None


def test_the_recorders_folder_is_read_from_the_jobs_environment(tmp_path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"],
        stdin=subprocess.PIPE,
        env={**os.environ, os.fsdecode(FOLDER_VARIABLE): str(tmp_path)},
    ) as process:
        wait_for(lambda: ring_folder_of(process.pid) == tmp_path, "its environment")
        process.kill()
    assert ring_folder_of(process.pid) is None
