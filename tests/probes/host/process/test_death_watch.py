"""Deaths of foreign children: real processes under a real parent that reaps them late, at once, or never."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from probe_trees import stat_line, write_tree
from rn50_advisor.probes.host.process import death_watch
from rn50_advisor.probes.host.process.death_watch import DeathWatch, ExitStatus, decode_wait_status, exit_status

DEADLINE_S = 30.0  # far more than any of this takes; only a broken watch waits so long

# Starts a child that lives until its parent is signalled; reaps only when asked, unless AT_ONCE.
PARENT = """
import os, signal, subprocess, sys
how, at_once = sys.argv[1], sys.argv[2] == "at once"
die = {"exit 3": "sys.exit(3)", "normal": "pass", "sigkill": "os.kill(os.getpid(), 9)", "sigsegv": "os.kill(os.getpid(), 11)"}[how]
code = "import os, resource, sys; resource.setrlimit(resource.RLIMIT_CORE, (0, 0)); print(flush=True); sys.stdin.readline(); " + die
child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
sys.stdin.readline()
child.stdin.write(b"die\\n"); child.stdin.flush()
if at_once:
    child.wait()
    print("reaped", flush=True)
sys.stdin.readline()
child.wait()
"""
HOW = [
    ("exit 3", ExitStatus(3, None)),
    ("normal", ExitStatus(0, None)),
    ("sigkill", ExitStatus(None, signal.SIGKILL)),
    ("sigsegv", ExitStatus(None, signal.SIGSEGV)),
]


@contextmanager
def family(how: str, reap: str = "late") -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A parent and the pid of its child, which is not ours."""
    command = [sys.executable, "-c", PARENT, how, reap]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        yield parent, int(parent.stdout.readline())
        assert parent.stdin is not None
        parent.stdin.close()


def let_end(parent: subprocess.Popen[str]) -> None:
    assert parent.stdin is not None
    parent.stdin.write("now\n")
    parent.stdin.flush()


@pytest.fixture(params=["pidfd", "polling"])
def watch(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[DeathWatch]:
    if request.param == "polling":

        def refused(pid: int) -> int:
            raise OSError(38, "Function not implemented")

        monkeypatch.setattr(os, "pidfd_open", refused)
    watch = DeathWatch()
    yield watch
    watch.close()


@pytest.mark.parametrize(("how", "expected"), HOW)
def test_a_death_is_reported_with_its_cause_before_the_parent_reaps(
    watch: DeathWatch, how: str, expected: ExitStatus
) -> None:
    with family(how) as (parent, pid):
        watch.watch(pid)
        watch.watch(pid)
        assert watch.poll(0) == ()
        assert exit_status(pid) is None, "it lives"
        before_ns = time.monotonic_ns()
        let_end(parent)
        (death,) = watch.poll(DEADLINE_S)
        assert (death.pid, death.exit_code, death.signal) == (pid, expected.code, expected.signal)
        assert before_ns < death.t_ns <= time.monotonic_ns()
        assert exit_status(pid) == expected
        assert watch.poll(0) == (), "reported once"
    assert exit_status(pid) is None, "reaped"


def test_a_process_reaped_before_the_poll_is_reported(watch: DeathWatch) -> None:
    with family("exit 3", "at once") as (parent, pid):
        watch.watch(pid)
        let_end(parent)
        assert parent.stdout is not None
        assert parent.stdout.readline() == "reaped\n"
        (death,) = watch.poll(DEADLINE_S)
        assert death.pid == pid
        # Linux 6.15 and later still report the exit code through the descriptor; nothing may be invented elsewhere
        assert (death.exit_code, death.signal) in ((3, None), (None, None))


def test_the_exit_code_of_a_reaped_process_on_a_kernel_that_keeps_it() -> None:
    release = tuple(int(part) for part in os.uname().release.split("-")[0].split(".")[:2])
    if release < (6, 15):
        pytest.skip("PIDFD_INFO_EXIT needs Linux 6.15")
    watch = DeathWatch()
    with family("sigkill", "at once") as (parent, pid):
        watch.watch(pid)
        let_end(parent)
        assert parent.stdout is not None
        parent.stdout.readline()
        (death,) = watch.poll(DEADLINE_S)
        assert (death.exit_code, death.signal) == (None, signal.SIGKILL)
    watch.close()


def test_a_pid_that_is_gone_already_is_reported_by_the_next_poll(watch: DeathWatch) -> None:
    with family("normal", "at once") as (parent, pid):
        let_end(parent)
        assert parent.stdout is not None
        parent.stdout.readline()
        watch.watch(pid)
        (death,) = watch.poll(0)
        assert (death.pid, death.exit_code, death.signal) == (pid, None, None)


def test_the_forgotten_are_not_reported(watch: DeathWatch) -> None:
    with family("normal") as (parent, pid), family("exit 3") as (other, other_pid):
        watch.watch(pid)
        watch.watch(other_pid)
        watch.forget(pid)
        let_end(parent)
        let_end(other)
        assert [death.pid for death in watch.poll(DEADLINE_S)] == [other_pid]


def test_watching_may_begin_while_another_thread_waits() -> None:
    watch = DeathWatch()
    deaths: list[death_watch.ProcessDeath] = []
    with family("exit 3") as (parent, pid):
        waiter = threading.Thread(target=lambda: deaths.extend(watch.poll(DEADLINE_S)))
        waiter.start()
        watch.watch(pid)
        let_end(parent)
        waiter.join()
        assert [(d.pid, d.exit_code) for d in deaths] == [(pid, 3)]
    watch.close()


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (0, ExitStatus(0, None)),
        (256, ExitStatus(1, None)),
        (255 << 8, ExitStatus(255, None)),
        (9, ExitStatus(None, 9)),
        (0x80 | 11, ExitStatus(None, 11)),  # with a core dump
    ],
)
def test_wait_status(status: int, expected: ExitStatus) -> None:
    assert decode_wait_status(status) == expected


def test_a_zombie_of_another_user_is_unknown_not_zero(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(os, "getuid", lambda: 1000)
    uid = "Uid:\t{0}\t{0}\t{0}\t{0}\n"
    write_tree(tmp_path, {"proc/7/stat": stat_line(7, state="Z"), "proc/7/status": uid.format(1001)})
    assert exit_status(7, tmp_path) is None
    write_tree(tmp_path, {"proc/7/status": uid.format(1000)})
    assert exit_status(7, tmp_path) == ExitStatus(0, None)
