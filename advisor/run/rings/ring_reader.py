"""The reading end of a ring file: what a rank or a worker wrote since the last look, without locks and without trust.

The file is read with `pread`, not mapped: a ring that somebody truncates would otherwise end the launcher with SIGBUS.
"""

from __future__ import annotations

import os
import struct
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.probes.rank import layout

# A whole slot at once: sequence, kind, flags, further steps, every possible payload field, sequence again.
_SLOT = struct.Struct(f"<QHHI{layout.PAYLOAD_FIELDS_MAX}qQ")
_TAIL = 4 + layout.PAYLOAD_FIELDS_MAX  # index of the second sequence in an unpacked slot
_COUNTS = {kind: len(fields) for kind, fields in layout.FIELDS.items()}
_PAYLOAD_AT = 4
_SLOTS_MAX = 1 << 20
_HEAD_READINGS_MAX = 16
_POSITION_READINGS_MAX = 4


class NotARing(Exception):
    """The file is no ring that this advisor can read; says why."""


@dataclass(frozen=True, slots=True)
class RingIdentity:
    """The fixed part of the header. Numbers are -1 where the process did not know them."""

    pid: int
    role: str
    rank: int
    local_rank: int
    world_size: int
    worker: int
    parent_pid: int
    created_unix_ns: int
    created_ns: int


@dataclass(frozen=True, slots=True)
class Position:
    """Where a process is right now, and what the recorder has cost it so far."""

    phase: str
    step: int
    since_ns: int
    self_ns: int
    errors: int
    ended: bool


@dataclass(frozen=True, slots=True)
class CollectiveCall:
    """The collective that a rank began last from Python. `inside_since_ns` 0: it is not in one now."""

    begun: int  # number of calls in its group, this one included
    kind: str
    group: int  # number for the group's name, the same on all ranks
    size: int  # ranks of the group
    inside_since_ns: int


Row = tuple[int, tuple[int, ...]]  # flags, above them the steps beyond the first; payload


@dataclass(frozen=True, slots=True)
class Drained:
    """Rows by kind, each oldest first, and the position of the process at that time."""

    rows: dict[int, list[Row]]
    lost: int
    position: Position


class RingReader:
    """Raises NotARing for anything that is not a whole ring of this layout, OSError where the file cannot be opened."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            self.identity, self._slots = _parse_header(os.pread(self._descriptor, layout.HEADER_BYTES, 0), self._size())
        except BaseException:
            os.close(self._descriptor)
            raise
        self._next = 0
        self._retried = -1
        self._backwards = 0

    def _size(self) -> int:
        return os.fstat(self._descriptor).st_size

    def _live(self) -> tuple[int, ...]:
        data = os.pread(self._descriptor, layout.LIVE.size, layout.LIVE_OFFSET)
        if len(data) < layout.LIVE.size:
            raise NotARing("it was cut off")
        return layout.LIVE.unpack(data)

    def _two_heads(self, least: int) -> tuple[int, int]:
        """The head read twice, neither below `least`, the lower one first.

        `pack_into` clears the bytes before it writes them (in a tight loop 1 to 2 % of readings saw a head of 0), and `pread` copies bytes,
        so one reading may be too low or, with bytes of two numbers in it, too high. Of two the lower is never beyond the truth.
        """
        for _ in range(_HEAD_READINGS_MAX):
            heads = sorted((self._live()[0], self._live()[0]))
            if heads[0] >= least:
                break
        return heads[0], heads[1]

    def position(self) -> Position:
        """The live part of the header, read until two readings agree; its step may be the next one's for a moment."""
        live = self._live()
        for _ in range(_POSITION_READINGS_MAX):
            again = self._live()
            if again[1:3] == live[1:3]:
                break
            live = again
        return _position(live)

    def collective(self) -> CollectiveCall | None:
        """The rank's latest collective; None if it has called none since its training began."""
        data = os.pread(self._descriptor, layout.COLLECTIVE.size, layout.COLLECTIVE_OFFSET)
        if len(data) < layout.COLLECTIVE.size:
            raise NotARing("it was cut off")
        begun, kind, group, size, since_ns = layout.COLLECTIVE.unpack(data)
        if begun <= 0 or not 0 <= kind < len(layout.COLLECTIVE_KINDS):
            return None
        return CollectiveCall(begun, layout.COLLECTIVE_KINDS[kind], group, size, since_ns)

    def drain(self) -> Drained:
        """All records since the last call, oldest first, and how many were overwritten before anybody read them."""
        live = self._live()
        if live[0] == self._next and live[1]:
            return Drained({}, 0, _position(live))
        head, _ = self._two_heads(self._next)
        if head < self._next:
            # killed in the middle of the store, or not one of our rings
            self._backwards += 1
            if self._backwards > _HEAD_READINGS_MAX:
                raise NotARing("its head went backwards")
            return Drained({}, 0, self.position())
        self._backwards = 0
        first = max(self._next, head - self._slots)
        lost = first - self._next
        slots = self._read_slots(first, head)
        # The writer has gone on: it may be in the middle of record `reached`, whose slot held `reached - slots`.
        _, reached = self._two_heads(head)
        overwritten = reached - self._slots
        rows: dict[int, list[Row]] = {}
        sequence = first
        for slot in slots:
            if slot[0] == sequence == slot[_TAIL] and sequence > overwritten:
                count = _COUNTS.get(slot[1])
                if count is not None:  # a kind of a newer recorder is skipped, not lost
                    rows.setdefault(slot[1], []).append(
                        (slot[2] | slot[3] << layout.FLAG_BITS, slot[_PAYLOAD_AT : _PAYLOAD_AT + count])
                    )
            elif sequence > overwritten and self._retried != sequence:
                # On weakly ordered CPUs the head can be seen before the slot: look once more at the next poll.
                self._retried = sequence
                break
            else:
                lost += 1
            sequence += 1
        self._next = sequence
        return Drained(rows, lost, self.position())

    def _read_slots(self, first: int, head: int) -> list[tuple[int, ...]]:
        begin, count = first % self._slots, head - first
        straight = min(count, self._slots - begin)
        data = self._read(begin, straight) + self._read(0, count - straight)
        return list(_SLOT.iter_unpack(data))

    def _read(self, begin: int, count: int) -> bytes:
        if not count:
            return b""
        data = os.pread(self._descriptor, count * layout.SLOT_BYTES, layout.HEADER_BYTES + begin * layout.SLOT_BYTES)
        if len(data) != count * layout.SLOT_BYTES:
            raise NotARing("it was cut off")
        return data

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


def _position(live: tuple[int, ...]) -> Position:
    _, at, step, self_ns, errors, ended = live
    phase = at & layout.PHASE_MASK
    name = layout.PHASES[phase] if phase < len(layout.PHASES) else "start"
    return Position(name, step, at >> layout.PHASE_BITS, self_ns, errors, ended == 1)


def _parse_header(header: bytes, size: int) -> tuple[RingIdentity, int]:
    if len(header) < layout.HEADER_BYTES:
        raise NotARing("shorter than a header")
    magic, version, slot_bytes, slots, pid, role, *rest, created_unix_ns, created_ns = layout.FIXED.unpack_from(header)
    if magic != layout.MAGIC:
        raise NotARing("another file")
    if version != layout.VERSION:
        raise NotARing(f"layout version {version}, this advisor reads {layout.VERSION}")
    if slot_bytes != layout.SLOT_BYTES or not 0 < slots <= _SLOTS_MAX or role not in layout.ROLES:
        raise NotARing("its header makes no sense")
    if size < layout.HEADER_BYTES + slots * slot_bytes:
        raise NotARing("it was cut off")
    rank, local_rank, world_size, worker, parent_pid = rest
    identity = RingIdentity(
        pid, layout.ROLES[role], rank, local_rank, world_size, worker, parent_pid, created_unix_ns, created_ns
    )
    return identity, slots
