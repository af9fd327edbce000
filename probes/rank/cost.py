"""Clocks of one thread that only the kernel keeps: run-queue delay and blocks read. Standard library only."""

from __future__ import annotations

import os
import resource
import threading


class RunDelay:
    """Nanoseconds a thread was runnable without a core, since it started (`schedstat`, field 2); 0 for ever where the kernel keeps none.

    Some kernels have the file and write zeros: there the third field, how often the thread has got a core, is 0 as well.
    """

    __slots__ = ("_descriptor",)

    def __init__(self) -> None:
        self._descriptor = -1
        try:
            path = "/proc/self/task/%d/schedstat" % threading.get_native_id()
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if _kept(os.pread(descriptor, 64, 0)):
                self._descriptor = descriptor
            else:
                os.close(descriptor)
        except OSError:
            pass  # the facts say so: what is written then is no measurement

    def __bool__(self) -> bool:
        """False where the kernel keeps no such clock."""
        return self._descriptor >= 0

    def __call__(self) -> int:
        if self._descriptor < 0:
            return 0
        try:
            return int(os.pread(self._descriptor, 64, 0).split()[1])
        except (OSError, IndexError, ValueError):
            return 0


def _kept(schedstat: bytes) -> bool:
    return schedstat.split()[2:3] not in ([], [b"0"])


def blocks_read() -> int:
    """512-byte blocks this thread caused to be read from a device (0 when the page cache had them)."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def system_time_ns() -> int:
    """CPU time of this thread inside the kernel, by its ticks: right in the mean of many steps, not in one."""
    return int(resource.getrusage(resource.RUSAGE_THREAD).ru_stime * 1e9)
