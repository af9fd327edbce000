"""Tells signals sent to us alone from signals sent to our whole process group, the job included.

Nothing that the kernel says about a signal tells the two apart, and a job that gets SIGTERM twice may break off its own orderly end. So an
idle process sits in the group with every signal blocked: what is pending there was sent to all. It ends when we do, however we do.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from pathlib import Path

_PROGRAMS = ("/usr/bin/cat", "/bin/cat")
# Senders that walk through all processes of a cgroup or job step, one by one, need a moment between two of them.
_GRACE_S = 0.05
_LOOK_S = 0.002


class Canary:
    """Made in a thread that blocks all signals it shall keep: the mask is inherited."""

    def __init__(self) -> None:
        self._process = _start()
        self.stale = False  # something is pending that was already accounted for

    def group_got(self, number: int) -> bool:
        """Whether the whole group got this signal; waits a little for it. False also where nobody can tell."""
        deadline = time.monotonic() + _GRACE_S
        while self._process is not None:
            if _pending(self._process.pid) >> (number - 1) & 1:
                self.stale = True
                return True
            if time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_S)
        return False

    def renew(self) -> None:
        """Pending signals cannot be taken back: a fresh one takes over."""
        self.close()
        self._process = _start()
        self.stale = False

    def close(self) -> None:
        if self._process is not None:
            self._process.kill()
            assert self._process.stdin is not None
            with contextlib.suppress(OSError):
                self._process.stdin.close()
            self._process.wait()
            self._process = None


def _start() -> subprocess.Popen[bytes] | None:
    """`cat` of a pipe that only we can write to: it ends with us. Nothing else of ours or the job's is open in it."""
    program = next((name for name in _PROGRAMS if os.access(name, os.X_OK)), None)
    if program is None:
        return None
    null = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        return subprocess.Popen([program], stdin=subprocess.PIPE, stdout=null, stderr=null, cwd="/", env={}, bufsize=0)
    return None


def _pending(pid: int) -> int:
    """Signals pending for the process, as a bit set."""
    bits = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            if line.startswith((b"SigPnd:", b"ShdPnd:")):
                bits |= int(line.split()[1], 16)
    return bits
