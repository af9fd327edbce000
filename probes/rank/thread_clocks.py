"""Kernel clocks of threads: run-queue delay, blocks read, another thread's CPU time. Standard library only."""

from __future__ import annotations

import os
import sys
import threading
import time
from importlib.machinery import BuiltinImporter, PathFinder
from importlib.util import module_from_spec
from typing import TYPE_CHECKING, Any

_OF_A_THREAD = 6  # bits of a clock id for one thread's CPU time (CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED)


def _resource_module() -> Any:
    """The standard library's `resource`, loaded without a name: torch does not import it, so an import could run a job's `resource.py`."""
    library = os.path.dirname(os.__file__)
    spec = BuiltinImporter.find_spec("resource") or PathFinder.find_spec(
        "resource", [os.path.join(library, "lib-dynload"), library]
    )
    if spec is None or spec.loader is None:
        raise ImportError("the standard library has no module `resource`")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if TYPE_CHECKING:
    import resource
else:
    resource = _resource_module()


class RunDelay:
    """Nanoseconds a thread was runnable without a core since its start (`schedstat`, field 2); always 0 if the kernel has no such clock.

    Some kernels have the file but write zeros: then the third field, the number of time slices, is 0 as well.
    """

    __slots__ = ("_descriptor", "_last_ns", "_path")

    def __init__(self, *, keep_open: bool = False) -> None:
        """`keep_open`: reads four times as fast (3 instead of 14 us), with one more descriptor in the process.

        Not used in a training process: a job may close all descriptors and reuse the numbers for its own files.
        """
        self._path = "/proc/self/task/%d/schedstat" % threading.get_native_id()
        self._descriptor = -1
        self._last_ns = 0
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._path = ""  # the facts record that the values are then no measurement
            return
        if not _kept(descriptor):
            self._path = ""
        if keep_open and self._path:
            self._descriptor = descriptor
        else:
            os.close(descriptor)

    def __bool__(self) -> bool:
        """False if the kernel has no such clock."""
        return bool(self._path)

    def __call__(self) -> int:
        if self._path:
            try:
                self._last_ns = int(self._read().split()[1])
            except (OSError, IndexError, ValueError):
                pass  # no descriptor left, or a changed root: keep the last value
        return self._last_ns

    def _read(self) -> bytes:
        if self._descriptor >= 0:
            return os.pread(self._descriptor, 64, 0)
        descriptor = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            return os.read(descriptor, 64)
        finally:
            os.close(descriptor)


def _kept(descriptor: int) -> bool:
    try:
        return os.pread(descriptor, 64, 0).split()[2:3] not in ([], [b"0"])
    except OSError:
        return False


def file_size_max() -> int:
    """This process's file size limit in bytes; negative without one."""
    return resource.getrlimit(resource.RLIMIT_FSIZE)[0]


def blocks_read() -> int:
    """512-byte blocks this thread has read from a device (page cache hits excluded)."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_inblock


def system_time_ns() -> int:
    """CPU time of this thread inside the kernel. It grows in ticks, so only averages over many steps are accurate."""
    return int(resource.getrusage(resource.RUSAGE_THREAD).ru_stime * 1e9)


def reads_and_system_ns() -> tuple[int, int]:
    """`blocks_read` and `system_time_ns` from one system call."""
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_inblock, int(usage.ru_stime * 1e9)


def used_by_children() -> tuple[int, int]:
    """CPU nanoseconds and 512-byte blocks read of the programs that this process has started and waited for: decoders, for instance."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return int((usage.ru_utime + usage.ru_stime) * 1e9), usage.ru_inblock


def cpu_of_thread_ns(native_id: int) -> int:
    """CPU time of another thread of this process. Raises OSError if it has ended; `pthread_getcpuclockid` might crash then."""
    return time.clock_gettime_ns(~native_id << 3 | _OF_A_THREAD)


class Sending:
    """CPU time of the threads that send a worker's batches: its queue's thread pickles them, another shares their memory."""

    __slots__ = ("_last_ns", "_queue")

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self._last_ns = 0

    def __call__(self) -> int:
        """Nanoseconds since the last call; -1 if unknown."""
        sharer = sys.modules.get("multiprocessing.resource_sharer")
        try:
            threads = self._queue._thread, getattr(getattr(sharer, "_resource_sharer", None), "_thread", None)
            now_ns = sum(cpu_of_thread_ns(thread.native_id) for thread in threads if thread is not None)
        except (AttributeError, OSError, TypeError):
            return -1  # a queue without a thread, an ended thread, a kernel without such clocks
        passed_ns, self._last_ns = now_ns - self._last_ns, now_ns
        return passed_ns
