"""A follower's summary of the steps that it reads."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.processes.process_roster import Roster
from rn50_advisor.advisor.run.rings import ring_followers
from rn50_advisor.advisor.run.rings.ring_followers import Followers, RankNumbers
from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import (
    BATCH_FIELDS,
    ERRORS_MAX,
    GPU_STEP_FIELDS,
    KIND_BATCH,
    KIND_GPU_STEP,
    KIND_STEP,
    PHASE_CODE,
    ROLE_RANK,
    ROLE_WORKER,
    STEP_FIELDS,
)
from rn50_advisor.probes.rank.ring import Ring


def row(flags: int, **ms: int) -> tuple[int, tuple[int, ...]]:
    """A step of 100 ms, from its phases in milliseconds."""
    given = {"t_end_ns": 100_000_000, **{f"{name}_ns": value * 1_000_000 for name, value in ms.items()}}
    return flags, tuple(given.get(name, 0) for name in STEP_FIELDS)


def test_a_ring_is_tried_again_when_it_was_our_own_shortage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rings = tmp_path / "rings"
    rings.mkdir(mode=0o700)
    Ring(str(rings / f"rank-{os.getpid()}.ring"), slots=16, role=ROLE_RANK, rank=0)
    writer = RunWriter.create(tmp_path / "run", meta={})
    followers = Followers(writer, Roster(writer, 1, "job"), rings, watch_death=lambda pid: None)

    def no_descriptor(path: Path) -> RingReader:
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as short:
        short.setattr(ring_followers, "RingReader", no_descriptor)
        followers.look(1)
    assert not followers.ranks()
    followers.look(2)
    assert [f.pid for f in followers.ranks()] == [os.getpid()]
    followers.close()
    writer.close()


@pytest.mark.parametrize(("errors", "gave_up"), [(ERRORS_MAX - 1, False), (ERRORS_MAX, True)])
def test_a_recorder_that_gave_up_is_a_gap_from_that_step_on(tmp_path: Path, errors: int, gave_up: bool) -> None:
    rings = tmp_path / "rings"
    rings.mkdir(mode=0o700)
    ring = Ring(str(rings / f"rank-{os.getpid()}.ring"), slots=16, role=ROLE_RANK, rank=0)
    ring.phase(PHASE_CODE["gap"], 41, 5000)
    ring.cost(1, errors)
    writer = RunWriter.create(tmp_path / "run", meta={})
    followers = Followers(writer, Roster(writer, 1, "job"), rings, watch_death=lambda pid: None)
    followers.look(1)
    followers.close()
    writer.close()
    [gap] = [gap for gap in read_recording(tmp_path / "run").gaps if gap.metric == "recorder.errors"]
    assert ("recorded nothing since step 41" in gap.reason) is gave_up


def stream(**ms: float) -> tuple[int, tuple[int, ...]]:
    """A step on the GPU's stream, from its phases in milliseconds."""
    given = {f"{name}_ns": round(value * 1_000_000) for name, value in ms.items()}
    return 0, tuple(given.get(name, 0) for name in GPU_STEP_FIELDS)


BUSY = stream(forward=33, backward=60, optimizer=4, gap=2)
EVALUATED = stream(forward=33, backward=60, optimizer=4, gap=2000)


def test_what_a_rank_writes_of_its_stream_is_noted(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir(mode=0o700)
    ring = Ring(str(rings / f"rank-{os.getpid()}.ring"), slots=64, role=ROLE_RANK, rank=0)
    writer = RunWriter.create(tmp_path / "run", meta={})
    followers = Followers(writer, Roster(writer, 1, "job"), rings, watch_death=lambda pid: None)
    for _ in range(20):
        ring.write(KIND_STEP, *row(0, input_wait=1, backward=27, gap=72))
        ring.write(KIND_GPU_STEP, *BUSY)
    followers.look(1)
    (rank,) = followers.ranks()
    assert rank.recent.idle_share == pytest.approx(2 / 99) and rank.recent.outside_share == pytest.approx(0.72)
    followers.close()
    writer.close()


def test_the_cpu_time_of_a_workers_batches_is_summed(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir(mode=0o700)
    ring = Ring(str(rings / f"worker-{os.getpid()}.ring"), slots=16, role=ROLE_WORKER, rank=0)
    writer = RunWriter.create(tmp_path / "run", meta={})
    followers = Followers(writer, Roster(writer, 1, "job"), rings, watch_death=lambda pid: None)
    for cpu_ns in (70, -1, 30):
        ring.write(KIND_BATCH, 0, [cpu_ns if name == "cpu_ns" else 0 for name in BATCH_FIELDS])
        followers.look(1)
    assert [f.made_cpu_ns for f in followers.workers()] == [100]
    followers.close()
    writer.close()


def test_ranks_that_know_their_number_keep_it() -> None:
    numbers = RankNumbers()
    assert [numbers.take(claimed, 100 + claimed) for claimed in (3, 0, 2, 1)] == [3, 0, 2, 1]


def test_ranks_that_do_not_get_the_next_free_number_in_order_of_appearance() -> None:
    numbers = RankNumbers()
    assert [numbers.take(-1, pid) for pid in (7, 8, 9)] == [0, 1, 2]


def test_a_successor_takes_up_the_number_of_the_dead() -> None:
    numbers = RankNumbers()
    numbers.take(0, 10)
    numbers.take(1, 11)
    numbers.release(1, 11)
    assert numbers.take(1, 12) == 1
    numbers.release(1, 11)  # late news of the predecessor
    assert numbers.take(-1, 13) == 2


def test_two_living_processes_never_share_a_number() -> None:
    numbers = RankNumbers()
    assert [numbers.take(0, 10), numbers.take(0, 11)] == [0, 1]
