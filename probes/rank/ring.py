"""The writing end of a ring file: one process, one thread, no lock, and no system call after its creation."""

from __future__ import annotations

import ctypes
import mmap
import os
import time
from typing import TYPE_CHECKING

from . import layout, rank_ring_folder
from .layout import HEADER_BYTES, LIVE_OFFSET, PHASE_BITS, RING_SHARE, SLOT, SLOT_BYTES, SLOTS_LEAST

if TYPE_CHECKING:
    from collections.abc import Iterable

# Offsets of the header's live part in eight-byte words.
_HEAD = LIVE_OFFSET // 8
PHASE, STEP, _SELF, _ERRORS, _ENDED = range(_HEAD + 1, _HEAD + 6)
WORDS = _ENDED + 1  # up to there
_WRITABLE = 0x200  # PyBUF_WRITE


class Ring:
    """A ring in shared memory, with fewer slots if memory is short.

    Raises OSError if not all pages can be allocated: writing to a full file system would raise SIGBUS.
    """

    def __init__(
        self,
        path: str,
        *,
        slots: int,
        role: int,
        rank: int = -1,
        local_rank: int = -1,
        world_size: int = -1,
        worker: int = -1,
    ) -> None:
        where, name = os.path.split(path)
        with rank_ring_folder.writable(where) as at:
            room = rank_ring_folder.room(at, RING_SHARE)
            while slots > SLOTS_LEAST and HEADER_BYTES + slots * SLOT_BYTES > room:
                slots //= 2
            size = HEADER_BYTES + slots * SLOT_BYTES
            # always a new file: reopening or truncating one that another thread has mapped would raise SIGBUS
            partial, descriptor = rank_ring_folder.create(at, name, size)
            try:
                os.posix_fallocate(descriptor, 0, size)
                self._map = mapped(descriptor, size)
                layout.FIXED.pack_into(
                    self._map, 0, layout.MAGIC, layout.VERSION, SLOT_BYTES, slots, os.getpid(), role, rank, local_rank,
                    world_size, worker, os.getppid(), time.time_ns(), time.perf_counter_ns(),
                )  # fmt: skip
                rank_ring_folder.keep(at, partial, name)  # a reader never sees half a header
            except BaseException:
                os.unlink(partial, dir_fd=at)
                raise
            finally:
                os.close(descriptor)
        # single eight-byte stores: `pack_into` clears its target first, so a reader could see zeros
        self.words = self._map.cast("q")
        self.path = path
        self._slots = slots
        self._next = 0

    def write(self, kind: int, flags: int, values: Iterable[int], more: int = 0) -> None:
        """Appends one record; `values` are the integers of the kind's fields. `more`: steps beyond the first in it."""
        sequence = self._next
        base = HEADER_BYTES + (sequence % self._slots) * SLOT_BYTES
        # `pack_into` clears the slot, then writes from first to last byte: readers see it as torn until both sequence numbers agree
        SLOT[kind].pack_into(self._map, base, sequence, kind, flags, more, *values, sequence)
        self._next = sequence + 1
        self.words[_HEAD] = self._next

    def phase(self, code: int, step: int, since_ns: int) -> None:
        words = self.words
        words[STEP] = step
        words[PHASE] = since_ns << PHASE_BITS | code

    def cost(self, self_ns: int, errors: int) -> None:
        """Writes the recorder's total cost and its number of swallowed exceptions."""
        self.words[_SELF] = self_ns
        self.words[_ERRORS] = errors

    def end(self) -> None:
        """Records that the process exits by itself."""
        self.words[_ENDED] = 1


def mapped(descriptor: int, size: int) -> memoryview:
    """A shared mapping of the file's first `size` bytes that lasts until the process ends. Raises OSError.

    Python's own `mmap` keeps a descriptor (optional from 3.13 on) and closes that number in the end: in a job that has closed all its
    descriptors, as daemons do, the number may be one of the job's files.
    """
    map_file = ctypes.CDLL(None, use_errno=True).mmap
    map_file.restype = ctypes.c_void_p
    map_file.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
    address = map_file(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, descriptor, 0)
    if address == ctypes.c_void_p(-1).value:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    kind = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int)
    # a private prototype: the job shares `pythonapi.PyMemoryView_FromMemory`
    memory: memoryview = kind(("PyMemoryView_FromMemory", ctypes.pythonapi))(address, size, _WRITABLE)
    return memory
