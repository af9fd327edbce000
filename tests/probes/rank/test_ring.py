"""Records of a process in shared memory, as the agent reads them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.probes.rank import rank_ring_folder
from rn50_advisor.probes.rank.layout import (
    FLAG_BITS,
    HEADER_BYTES,
    KIND_STEP,
    PHASE_BITS,
    PHASE_CODE,
    PHASES,
    ROLE_RANK,
    SLOT_BYTES,
    STEP_FIELDS,
)
from rn50_advisor.probes.rank.ring import Ring, mapped


def ring_of(folder: Path, slots: int = 16) -> Ring:
    return Ring(str(folder / "rank.ring"), slots=slots, role=ROLE_RANK, rank=3)


def step(number: int) -> list[int]:
    return [number, *range(1, len(STEP_FIELDS))]


def test_a_new_ring_says_whose_it_is_and_holds_nothing(tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    reader = RingReader(Path(ring.path))
    assert (reader.identity.pid, reader.identity.rank) == (os.getpid(), 3)
    assert reader.position().phase == "start"
    assert not reader.position().ended
    assert (tmp_path / "rank.ring").stat().st_mode & 0o077 == 0
    reader.close()


def test_where_the_process_is_and_what_the_recorder_cost_is_seen_at_once(tmp_path: Path) -> None:
    ring = ring_of(tmp_path)
    reader = RingReader(Path(ring.path))
    ring.phase(PHASE_CODE["optimizer"], 41, 5000)
    ring.cost(700, 2)
    at = reader.position()
    assert (at.phase, at.step, at.since_ns, at.self_ns, at.errors, at.ended) == ("optimizer", 41, 5000, 700, 2, False)
    ring.end()
    assert reader.position().ended
    reader.close()


def test_each_phase_fits_beside_the_uptime_of_a_decade() -> None:
    decade_ns = 10 * 366 * 86_400 * 10**9
    assert len(PHASES) <= 1 << PHASE_BITS and decade_ns << PHASE_BITS < 1 << 63


@pytest.mark.parametrize(("written", "lost"), [(0, 0), (5, 0), (40, 24)])
def test_records_come_back_in_order_and_the_oldest_are_overwritten(tmp_path: Path, written: int, lost: int) -> None:
    ring = ring_of(tmp_path, slots=16)
    reader = RingReader(Path(ring.path))
    for number in range(written):
        ring.write(KIND_STEP, number % 2, step(number))
    drained = reader.drain()
    kept = [(number % 2, tuple(step(number))) for number in range(written)]
    rows = drained.rows.get(KIND_STEP, [])
    assert rows == kept[len(kept) - len(rows) :]
    assert len(rows) + drained.lost == written
    assert drained.lost >= lost and (drained.lost == 0) == (lost == 0)
    reader.close()


def test_a_row_of_several_steps_says_how_many_more_there_are(tmp_path: Path) -> None:
    ring = ring_of(tmp_path, slots=16)
    reader = RingReader(Path(ring.path))
    ring.write(KIND_STEP, 3, step(0), 500)
    ((flags, payload),) = reader.drain().rows[KIND_STEP]
    assert (flags, payload) == (3 | 500 << FLAG_BITS, tuple(step(0)))
    reader.close()


def test_where_memory_is_short_a_ring_has_fewer_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_ring_folder, "room", lambda at, share: HEADER_BYTES + 300 * SLOT_BYTES)
    ring = ring_of(tmp_path, slots=1024)
    assert Path(ring.path).stat().st_size == HEADER_BYTES + 256 * SLOT_BYTES


def test_a_mapping_outlives_its_descriptor(tmp_path: Path) -> None:
    file = tmp_path / "memory"
    file.write_bytes(b"x" * 4096)
    descriptor = os.open(file, os.O_RDWR)
    memory = mapped(descriptor, 4096)
    os.close(descriptor)
    memory[0] = ord("y")
    assert file.read_bytes()[:2] == b"yx"
    with pytest.raises(OSError):
        mapped(descriptor, 4096)
