"""The reading end of a ring: whole, lapped, torn, foreign, cut off; its writer is a real process wherever that matters."""

from __future__ import annotations

import os
import signal
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.rings.ring_reader import NotARing, RingReader
from rn50_advisor.probes.rank.layout import (
    BATCH_FIELDS,
    HEADER_BYTES,
    KIND_BATCH,
    KIND_STEP,
    LIVE_OFFSET,
    PHASE_CODE,
    ROLE_RANK,
    ROLE_WORKER,
    SLOT_BYTES,
    STEP_FIELDS,
)
from rn50_advisor.probes.rank.layout import PHASES as PHASE_NAMES
from rn50_advisor.probes.rank.ring import Ring

HEAD = struct.Struct("<Q")  # the first word of the live part: records written so far

SLOTS = 16
ROOT = str(Path(__file__).resolve().parents[4] / "src")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "rank-1.ring"


def step(number: int) -> tuple[int, ...]:
    return (number, *range(1, len(STEP_FIELDS)))


def write(ring: Ring, first: int, count: int) -> None:
    for number in range(first, first + count):
        ring.write(KIND_STEP, number % 7, step(number))


def steps_of(reader: RingReader) -> tuple[list[int], int]:
    drained = reader.drain()
    return [payload[0] for _, payload in drained.rows.get(KIND_STEP, [])], drained.lost


def test_records_come_back_as_written_with_who_wrote_them(path: Path) -> None:
    ring = Ring(str(path), slots=SLOTS, role=ROLE_RANK, rank=3, local_rank=1, world_size=8)
    ring.write(KIND_STEP, 5, step(0))
    ring.write(KIND_BATCH, 1, tuple(range(len(BATCH_FIELDS))))
    reader = RingReader(path)
    drained = reader.drain()
    assert drained.rows == {KIND_STEP: [(5, step(0))], KIND_BATCH: [(1, tuple(range(len(BATCH_FIELDS))))]}
    assert drained.lost == 0
    who = reader.identity
    assert (who.pid, who.role, who.rank, who.local_rank, who.world_size) == (os.getpid(), "rank", 3, 1, 8)
    assert reader.drain().rows == {}


def test_position_is_where_the_process_is(path: Path) -> None:
    ring = Ring(str(path), slots=SLOTS, role=ROLE_WORKER, worker=2)
    reader = RingReader(path)
    ring.phase(PHASE_CODE["gap"], 41, 123456789)
    ring.cost(5_000, 2)
    at = reader.position()
    assert (at.phase, at.step, at.since_ns, at.self_ns, at.errors, at.ended) == ("gap", 41, 123456789, 5_000, 2, False)
    ring.end()
    assert reader.position().ended


@pytest.mark.parametrize("batches", [[1, 2, 3], [SLOTS], [SLOTS - 1, SLOTS, SLOTS - 1], [0, 5, 0]])
def test_nothing_is_lost_or_doubled_while_the_reader_keeps_up(path: Path, batches: list[int]) -> None:
    ring = Ring(str(path), slots=SLOTS, role=ROLE_RANK)
    reader, seen, written = RingReader(path), [], 0
    for count in batches:
        write(ring, written, count)
        written += count
        # the slot of the oldest record may be under the pen already: a full ring gives all but that one
        numbers, lost = steps_of(reader)
        seen += numbers
        assert lost + len(numbers) == count and lost <= (count == SLOTS)
    assert seen == sorted(set(seen))


@pytest.mark.parametrize("behind", [1, SLOTS, 10 * SLOTS + 3])
def test_a_lapped_reader_counts_what_it_lost(path: Path, behind: int) -> None:
    ring = Ring(str(path), slots=SLOTS, role=ROLE_RANK)
    reader = RingReader(path)
    write(ring, 0, SLOTS + behind)
    numbers, lost = steps_of(reader)
    assert numbers == list(range(behind + 1, SLOTS + behind))
    assert lost == behind + 1


def test_a_torn_slot_is_looked_at_once_more_and_then_counted(path: Path) -> None:
    ring = Ring(str(path), slots=SLOTS, role=ROLE_RANK)
    reader = RingReader(path)
    write(ring, 0, 3)
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + SLOT_BYTES)  # record 1
        file.write(HEAD.pack(99))
    assert steps_of(reader) == ([0], 0)
    assert steps_of(reader) == ([2], 1)


def test_a_slot_that_becomes_whole_meanwhile_is_not_lost(path: Path) -> None:
    ring = Ring(str(path), slots=SLOTS, role=ROLE_RANK)
    reader = RingReader(path)
    write(ring, 0, 2)
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + SLOT_BYTES)
        file.write(HEAD.pack(99))
        file.flush()
        assert steps_of(reader) == ([0], 0)
        file.seek(HEADER_BYTES + SLOT_BYTES)
        file.write(HEAD.pack(1))
    assert steps_of(reader) == ([1], 0)


def test_records_of_an_unknown_kind_are_skipped_not_lost(path: Path) -> None:
    ring = Ring(str(path), slots=SLOTS, role=ROLE_RANK)
    write(ring, 0, 3)
    with path.open("r+b") as file:
        file.seek(HEADER_BYTES + SLOT_BYTES + 8)
        file.write(b"\x63\x00")
    assert steps_of(RingReader(path)) == ([0, 2], 0)


BAD = {
    "empty": lambda data: b"",
    "shorter than a header": lambda data: data[:100],
    "another file": lambda data: b"SQLite format 3\0" + data[16:],
    "of a newer layout": lambda data: data[:8] + b"\x7f" + data[9:],
    "slots cut off": lambda data: data[:-1],
    "no slots": lambda data: data[:16] + b"\0\0\0\0" + data[20:],
    "a billion slots": lambda data: data[:16] + b"\xff\xff\xff\x3f" + data[20:],
    "no role": lambda data: data[:24] + b"\x09" + data[25:],
}


@pytest.mark.parametrize("spoil", BAD.values(), ids=BAD.keys())
def test_what_is_no_ring_is_refused(path: Path, spoil: object) -> None:
    Ring(str(path), slots=SLOTS, role=ROLE_RANK)
    path.write_bytes(spoil(path.read_bytes()))  # type: ignore[operator]
    with pytest.raises(NotARing):
        RingReader(path)


def test_a_ring_that_is_cut_off_under_the_reader_is_refused_not_fatal(path: Path) -> None:
    ring = Ring(str(path), slots=SLOTS, role=ROLE_RANK)
    reader = RingReader(path)
    write(ring, 0, 5)
    os.truncate(path, HEADER_BYTES)
    with pytest.raises(NotARing):
        reader.drain()
    os.truncate(path, 0)
    with pytest.raises(NotARing):
        reader.position()


def set_head(path: Path, head: int) -> None:
    with path.open("r+b") as file:
        file.seek(LIVE_OFFSET)
        file.write(HEAD.pack(head))


def test_a_head_caught_in_the_middle_of_its_store_is_no_news(path: Path) -> None:
    """`struct` clears the bytes before it writes them."""
    ring = Ring(str(path), slots=SLOTS, role=ROLE_RANK)
    reader = RingReader(path)
    write(ring, 0, 5)
    reader.drain()
    set_head(path, 0)
    assert steps_of(reader) == ([], 0)
    write(ring, 5, 2)
    assert steps_of(reader) == ([5, 6], 0)


def test_a_head_that_stays_behind_is_refused(path: Path) -> None:
    ring = Ring(str(path), slots=SLOTS, role=ROLE_RANK)
    reader = RingReader(path)
    write(ring, 0, 5)
    reader.drain()
    set_head(path, 2)
    with pytest.raises(NotARing):
        for _ in range(100):
            reader.drain()


PHASES = """
import os, sys
sys.path.insert(0, sys.argv[2])
from rn50_advisor.probes.rank.layout import ROLE_RANK
from rn50_advisor.probes.rank.ring import Ring
ring = Ring(sys.argv[1], slots=16, role=ROLE_RANK, rank=0)
ring.phase(7, 7, 7)
os.write(1, b"ready")
number = 7
while True:
    number += 1
    ring.phase(number % 8, number, number)
    for _ in range(2000): pass
"""


def test_positions_are_whole_while_they_are_written(path: Path) -> None:
    writer = subprocess.Popen([sys.executable, "-c", PHASES, str(path), ROOT], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.read(5) == b"ready"
    reader = RingReader(path)
    seen = [reader.position() for _ in range(5_000)]
    writer.kill()
    writer.wait()
    writer.stdout.close()
    torn = [at for at in seen if at.phase != PHASE_NAMES[at.since_ns % 8] or at.step - at.since_ns not in (0, 1)]
    assert torn == []


WRITER = """
import os, sys
sys.path.insert(0, sys.argv[3])
from rn50_advisor.probes.rank.layout import KIND_STEP, ROLE_RANK, STEP_FIELDS
from rn50_advisor.probes.rank.ring import Ring
ring = Ring(sys.argv[1], slots=int(sys.argv[2]), role=ROLE_RANK, rank=0)
os.write(1, b"ready")
number = 0
while True:
    ring.write(KIND_STEP, 0, (number,) * len(STEP_FIELDS))
    number += 1
"""


def test_a_writer_that_is_killed_while_it_writes_leaves_only_whole_records(path: Path) -> None:
    """It writes as fast as it can and laps the reader all the time; what comes through is whole, in order and never doubled."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, str(path), "64", ROOT], stdout=subprocess.PIPE)
    assert writer.stdout is not None
    assert writer.stdout.read(5) == b"ready"
    reader = RingReader(path)
    seen, lost = [], 0
    while len(seen) < 20_000:
        drained = reader.drain()
        seen += [payload for _, payload in drained.rows.get(KIND_STEP, [])]
        lost += drained.lost
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    for _ in range(2):  # a slot that looks torn is looked at twice
        drained = reader.drain()
        seen += [payload for _, payload in drained.rows.get(KIND_STEP, [])]
        lost += drained.lost
    assert all(payload == (payload[0],) * len(STEP_FIELDS) for payload in seen)
    numbers = [payload[0] for payload in seen]
    assert numbers == sorted(set(numbers))
    assert numbers[-1] + 1 == len(numbers) + lost
    assert not reader.position().ended
