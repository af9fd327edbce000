"""Ends the jobs of `try` if `try` itself is killed: a job that rests at that moment would stay stopped, with its memory, for ever.

A process of its own, in a session of its own: it holds one end of a pipe and hears from the other end which processes there are.
"""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

import psutil

from rn50_advisor.advisor.run.launch.job_environment import FOLDER_VARIABLE
from rn50_advisor.advisor.run.launch.own_processes import start_module
from rn50_advisor.advisor.run.rings.own_folder import start_ticks
from rn50_advisor.advisor.trials.tree_end import end_tree

_MODULE = "rn50_advisor.advisor.trials.keeper"


class Keeper:
    """`try`'s handle on the keeper. A process is named by its pid and its start, so that no other one is ever meant."""

    def __init__(self) -> None:
        reads, self._tells = os.pipe()
        self._process = start_module(_MODULE, [str(reads)], descriptors=[reads])
        os.close(reads)

    def watch(self, pid: int) -> None:
        self._tell(f"+{pid} {start_ticks(pid)}")

    def forget(self, pid: int) -> None:
        """The process has been waited for, or is about to be."""
        self._tell(f"-{pid}")

    def close(self) -> None:
        os.close(self._tells)
        self._process.wait()

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):  # a keeper that was killed is no reason to end
            os.write(self._tells, f"{line}\n".encode())


def main() -> None:
    """Argument: the descriptor to read from. Ends all that is still watched when nobody can write to it any more."""
    watched: dict[int, int] = {}
    with os.fdopen(int(sys.argv[1])) as told:
        for line in told:
            if line.startswith("+"):
                named, since = line[1:].split()
                watched[int(named)] = int(since)
            else:
                watched.pop(int(line[1:]), None)
    for pid, ticks in watched.items():
        if start_ticks(pid) == ticks:
            end_with_jobs(pid)


def end_with_jobs(pid: int) -> None:
    """Ends a process that records a job, the job first, also what has left its tree."""
    with contextlib.suppress(psutil.Error):
        for child in psutil.Process(pid).children():
            end_tree(child.pid, ring_folder_of(child.pid))
    end_tree(pid)


def ring_folder_of(pid: int) -> Path | None:
    """Where the recorder of this job writes: what it has started can be known by that, also where it has left the tree."""
    try:
        variables = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        return None
    found = [value for name, _, value in (one.partition(b"=") for one in variables) if name == FOLDER_VARIABLE]
    return Path(os.fsdecode(found[0])) if found else None
