"""Separates signals sent to us alone from signals sent to our whole process group, the job included.

The kernel's signal information does not separate the two, and a job that gets SIGTERM twice may abort its own shutdown. So an idle
process runs in the group with every signal blocked: a signal pending there was sent to all. It ends when we do, in any case.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
from pathlib import Path

_PROGRAMS = ("/usr/bin/cat", "/bin/cat")
# Used if neither exists (images without a shell, NixOS): slower to start, with the same signal behaviour.
_OWN_CAT = (sys.executable, "-IS", "-c", "import os\nwhile os.read(0, 1): pass")
# Senders that walk through all processes of a cgroup or job step, one by one, need a moment between two of them.
_GRACE_S = 0.2
_LOOK_S = 0.002


class Canary:
    """Made in a thread that blocks all signals it shall keep: the mask is inherited."""

    def __init__(self) -> None:
        self._process = _start()
        self._accounted = 0  # bit set of what is pending and was already answered for
        self._carried = 0  # came while one canary took over from the other

    @property
    def used(self) -> bool:
        """Something is pending that cannot be taken back: another one should take over soon."""
        return bool(self._accounted)

    def group_got(self, number: int, *, patient: bool = True) -> bool:
        """True if the whole process group got this signal; waits briefly for it if `patient`. False if unknown."""
        bit = 1 << (number - 1)
        if self._carried & bit:
            self._carried &= ~bit
            return True
        deadline = time.monotonic() + (_GRACE_S if patient else 0.0)
        while self._process is not None:
            if _pending(self._process.pid) & bit:
                self._accounted |= bit
                return True
            if time.monotonic() >= deadline:
                break
            time.sleep(_LOOK_S)
        return False

    def pids(self) -> frozenset[int]:
        """The canary process, while it lives."""
        return (
            frozenset() if self._process is None or self._process.poll() is not None else frozenset({self._process.pid})
        )

    def renew(self) -> None:
        """A fresh one takes over. What reaches the old one until then is not forgotten."""
        old, self._process = self._process, _start()
        if old is not None:
            came = _pending(old.pid) & ~self._accounted
            # read afterwards: what reached both is still pending for the new one, and would count twice
            self._carried |= came & ~(_pending(self._process.pid) if self._process is not None else 0)
            _end(old)
        self._accounted = 0

    def expect(self, number: int) -> None:
        """Marks a signal as accounted for: the whole group is already known to have received it."""
        self._accounted |= 1 << (number - 1)

    def close(self) -> None:
        if self._process is not None:
            _end(self._process)
            self._process = None


def _start() -> subprocess.Popen[bytes] | None:
    """Starts `cat` on a pipe that only this process can write to, so that it ends with us. It inherits no other open file."""
    program = next((name for name in _PROGRAMS if os.access(name, os.X_OK)), None)
    command = _OWN_CAT if program is None else (program,)
    null = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=null, stderr=null, cwd="/", env={}, bufsize=0)
    return None


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    assert process.stdin is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    process.wait()


def _pending(pid: int) -> int:
    """Signals pending for the process, as a bit set."""
    bits = 0
    with contextlib.suppress(OSError, ValueError):
        for line in Path(f"/proc/{pid}/status").read_bytes().splitlines():
            if line.startswith((b"SigPnd:", b"ShdPnd:")):
                bits |= int(line.split()[1], 16)
    return bits
