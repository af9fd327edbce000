"""Clocks of one thread that only the kernel keeps: run-queue delay, blocks read, another thread's CPU time. Standard library only."""

from __future__ import annotations

import os
import resource
import sys
import threading
import time
from typing import Any

_OF_A_THREAD = 6  # in a clock's number: CPU time, of one thread (CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED)


class RunDelay:
    """Nanoseconds a thread was runnable without a core, since it started (`schedstat`, field 2); 0 for ever where the kernel keeps none.

    Some kernels have the file and write zeros: there the third field, how often the thread has got a core, is 0 as well.
    """

    __slots__ = ("_descriptor", "_file")

    def __init__(self) -> None:
        self._descriptor = -1
        self._file = (0, 0)  # by device and inode
        try:
            path = "/proc/self/task/%d/schedstat" % threading.get_native_id()
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            if _kept(os.pread(descriptor, 64, 0)):
                self._descriptor, self._file = descriptor, _identity(descriptor)
            else:
                os.close(descriptor)
        except OSError:
            pass  # the facts say so: what is written then is no measurement

    def close(self) -> None:
        """Unless the job has closed it: the number may be that of a file of its own by now."""
        descriptor, self._descriptor = self._descriptor, -1
        try:
            if descriptor >= 0 and _identity(descriptor) == self._file:
                os.close(descriptor)
        except OSError:
            pass  # closed already

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


def _identity(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def _kept(schedstat: bytes) -> bool:
    return schedstat.split()[2:3] not in ([], [b"0"])


def blocks_read() -> int:
    """512-byte blocks this thread caused to be read from a device (0 when the page cache had them)."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def system_time_ns() -> int:
    """CPU time of this thread inside the kernel, by its ticks: right in the mean of many steps, not in one."""
    return int(resource.getrusage(resource.RUSAGE_THREAD).ru_stime * 1e9)


def reads_and_system_ns() -> tuple[int, int]:
    """`blocks_read` and `system_time_ns` by one system call."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_inblock, int(usage.ru_stime * 1e9)


def cpu_of_thread_ns(native_id: int) -> int:
    """CPU time of another thread of this process. Raises OSError where it has ended; `pthread_getcpuclockid` may crash then."""
    return time.clock_gettime_ns(~native_id << 3 | _OF_A_THREAD)


class Sending:
    """CPU time of the threads that send a worker's batches: that of its queue pickles them, another hands out their shared memory."""

    __slots__ = ("_last_ns", "_queue")

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._last_ns = 0

    def __call__(self) -> int:
        """Nanoseconds since the last call; -1 where they cannot be told."""
        sharer = sys.modules.get("multiprocessing.resource_sharer")
        try:
            threads = self._queue._thread, getattr(getattr(sharer, "_resource_sharer", None), "_thread", None)
            now_ns = sum(cpu_of_thread_ns(thread.native_id) for thread in threads if thread is not None)
        except (AttributeError, OSError, TypeError):
            return -1  # a queue without a thread of its own, one that has ended, a kernel without such clocks
        passed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return passed_ns
