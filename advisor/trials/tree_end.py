"""Ends all processes of a job at once, so that none of them does anything more: stopped from the top down, then killed."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil

from rn50_advisor.advisor.run.launch.job_environment import FOLDER_VARIABLE

_GONE_WITHIN_S = 30.0  # a process that waits for a disk or a device dies when that answers
_LOOK_S = 0.005
_STILL_ROUNDS = 2  # looks in a row that find no new process: one alone may miss a child that was just being made


def end_tree(pid: int, ring_folder: Path | None = None) -> list[int]:
    """Kills a process and all that it started, also what has left its tree; waits until they are gone. Returns those that are not.

    Those that left are known by the job's own mount namespace, and by RN50_ADVISOR_DIR if `ring_folder` is given. Whoever started the
    process has to wait for it; its own children end with it.
    """
    is_of_job = _mark(pid, ring_folder)
    known: dict[int, psutil.Process] = {}
    quiet = 0
    while quiet < _STILL_ROUNDS:
        new = [process for process in _members(pid, is_of_job) if process.pid not in known]
        quiet = 0 if new else quiet + 1
        for process in new:
            known[process.pid] = process
            _signal(process, signal.SIGSTOP)
    for process in known.values():
        _signal(process, signal.SIGKILL)
    return _wait(known, lambda: _members(pid, is_of_job))


def _members(pid: int, is_of_job: Callable[[int], bool]) -> Iterator[psutil.Process]:
    """Top down. Never this process or one that it descends from."""
    with contextlib.suppress(psutil.NoSuchProcess):
        root = psutil.Process(pid)
        yield root
        yield from root.children(recursive=True)
    own = {os.getpid(), *(parent.pid for parent in psutil.Process().parents())}
    for process in psutil.process_iter():
        if process.pid not in own and is_of_job(process.pid):
            yield process


def _mark(pid: int, ring_folder: Path | None) -> Callable[[int], bool]:
    """Recognises processes of the job by what they inherited and rarely change."""
    namespace, here = _namespace(pid, "mnt"), _namespace(os.getpid(), "mnt")
    namespace = None if namespace == here else namespace
    pids_here = _namespace(os.getpid(), "pid")
    variable = None
    if ring_folder and os.environb.get(FOLDER_VARIABLE) != os.fsencode(
        ring_folder
    ):  # else all around us would be of the job
        variable = b"%s=%s" % (FOLDER_VARIABLE, os.fsencode(ring_folder))

    def is_of_job(other: int) -> bool:
        if namespace is not None and _namespace(other, "mnt") == namespace:
            return True
        if variable is None or _namespace(other, "pid") != pids_here:
            return False
        try:
            about = Path(f"/proc/{other}")
            return about.stat().st_uid == os.geteuid() and variable in (about / "environ").read_bytes().split(b"\0")
        except OSError:
            return False

    return is_of_job


def _namespace(pid: int, kind: str) -> str | None:
    try:
        return os.readlink(f"/proc/{pid}/ns/{kind}")  # noqa: PTH115 - a name that leads nowhere
    except OSError:
        return None


def _signal(process: psutil.Process, signum: signal.Signals) -> None:
    """Never to another process that got the pid meanwhile: it is looked at once the descriptor holds whatever has the pid."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    except OSError:  # Linux before 5.3
        with contextlib.suppress(psutil.Error):
            process.send_signal(signum)
        return
    try:
        with contextlib.suppress(OSError):
            if process.is_running():
                signal.pidfd_send_signal(descriptor, signum)
    finally:
        os.close(descriptor)


def _wait(known: dict[int, psutil.Process], found: Callable[[], Iterator[psutil.Process]]) -> list[int]:
    """Waits until none of them runs, and kills what was still started meanwhile."""
    deadline_s = time.monotonic() + _GONE_WITHIN_S
    while True:
        late = [process for process in found() if process.pid not in known]
        for process in late:
            known[process.pid] = process
            _signal(process, signal.SIGKILL)
        left = [process.pid for process in known.values() if _runs(process)]
        if (not left and not late) or time.monotonic() > deadline_s:
            return left
        time.sleep(_LOOK_S)


def _runs(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
