"""All processes of a job end at once and without a word, and no other process is touched."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from rn50_advisor.advisor.trials import tree_end
from rn50_advisor.advisor.trials.tree_end import end_tree

# A child that ignores SIGTERM, its child in a session of its own, and a grandchild whose parent has left; each saves at its end.
FAMILY = r"""
import atexit, os, signal, subprocess, sys, time
folder = sys.argv[1]
def save(*_):
    open(os.path.join(folder, str(os.getpid())), "w").close()
atexit.register(save)
for signum in (signal.SIGTERM, signal.SIGHUP, signal.SIGCONT):
    signal.signal(signum, save)
def fork(then):
    if os.fork() == 0:
        then()
        signal.signal(signal.SIGCHLD, save)  # as a parent would that hears that its child was stopped
        os.write(1, b"%d\n" % os.getpid())
        time.sleep(600)
        os._exit(0)
def detached():
    os.setsid()
    parent = os.getpid()
    if os.fork():
        os._exit(0)
    while os.getppid() == parent:
        time.sleep(0.001)
fork(lambda: fork(os.setsid))
fork(detached)
os.write(1, b"%d\n" % os.getpid())
while True:
    time.sleep(0.001)
    if os.fork() == 0:
        os._exit(0)
    os.wait()
"""


@pytest.fixture
def family(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], list[psutil.Process]]]:
    """The root, and all its members, of which one has left it."""
    variables = {**os.environ, "RN50_ADVISOR_DIR": str(tmp_path / "ring")}
    (tmp_path / "saved").mkdir()
    argv = [sys.executable, "-c", FAMILY, str(tmp_path / "saved")]
    root = subprocess.Popen(argv, stdout=subprocess.PIPE, env=variables)
    assert root.stdout is not None
    members = [psutil.Process(int(root.stdout.readline())) for _ in range(4)]
    yield root, members
    for process in members:
        if process.is_running() and process.pid != root.pid:
            process.kill()
    root.kill()
    root.wait()
    root.stdout.close()


def runs(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


def test_every_process_ends_also_one_that_has_left_the_tree(
    family: tuple[subprocess.Popen[bytes], list[psutil.Process]], tmp_path: Path
) -> None:
    root, members = family
    tree = psutil.Process(root.pid).children(recursive=True)
    assert any(member not in tree and member.pid != root.pid for member in members), "one has left"
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        assert end_tree(root.pid, tmp_path / "ring") == []
        assert [member for member in members if runs(member)] == []
        assert other.poll() is None
        assert other.stdin is not None
        other.stdin.close()
    assert root.wait() == -signal.SIGKILL
    assert list((tmp_path / "saved").iterdir()) == [], "no handler ran"


def test_another_trials_processes_and_their_relatives_are_left_alone(tmp_path: Path) -> None:
    variables = {**os.environ, "RN50_ADVISOR_DIR": str(tmp_path / "ring-2")}
    argv = [sys.executable, "-c", "input()"]
    with (
        subprocess.Popen(argv, stdin=subprocess.PIPE, env=variables) as other,
        subprocess.Popen(argv, stdin=subprocess.PIPE) as job,
    ):
        assert end_tree(job.pid, tmp_path / "ring") == []
        assert other.poll() is None
        other.kill()


def test_a_ring_folder_that_is_our_own_marks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where `try` runs inside of a job that is watched: what is around it has the same variable."""
    monkeypatch.setenv("RN50_ADVISOR_DIR", str(tmp_path))
    argv = [sys.executable, "-c", "input()"]
    with subprocess.Popen(argv, stdin=subprocess.PIPE) as around, subprocess.Popen(argv, stdin=subprocess.PIPE) as job:
        assert end_tree(job.pid, tmp_path) == []
        assert around.poll() is None
        around.kill()


def test_this_process_is_never_of_the_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where `try` itself runs under a variable that a job before it was given."""
    monkeypatch.setattr(tree_end, "_mark", lambda *_: lambda pid: True)
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    found = {process.pid for process in tree_end._members(2**22 + 1, lambda pid: True)}
    assert not found & own


def test_a_pid_that_means_another_process_by_now_gets_no_signal() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        earlier = psutil.Process(other.pid)
        earlier._ident = (other.pid, 1.0)
        tree_end._signal(earlier, signal.SIGKILL)
        assert other.poll() is None
        other.kill()


def test_a_process_that_is_gone_is_no_error() -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as job:
        job.wait()
    assert end_tree(job.pid) == []
