"""What a follower makes of the steps that it reads."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.run.processes.process_roster import Roster
from rn50_advisor.advisor.run.rings import ring_followers
from rn50_advisor.advisor.run.rings.ring_follower import Follower
from rn50_advisor.advisor.run.rings.ring_followers import Followers
from rn50_advisor.advisor.run.rings.ring_reader import Position, RingReader
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import (
    ERRORS_MAX,
    FLAG_NO_LOADER,
    FLAG_TAIL,
    GPU_STEP_FIELDS,
    KIND_GPU_STEP,
    KIND_STEP,
    PHASE_CODE,
    ROLE_RANK,
    STEP_FIELDS,
)
from rn50_advisor.probes.rank.ring import Ring


def row(flags: int, **ms: int) -> tuple[int, tuple[int, ...]]:
    """A step of 100 ms, from its phases in milliseconds."""
    given = {"t_end_ns": 100_000_000, **{f"{name}_ns": value * 1_000_000 for name, value in ms.items()}}
    return flags, tuple(given.get(name, 0) for name in STEP_FIELDS)


@pytest.mark.parametrize(
    ("flags", "share"),
    [
        pytest.param(0, 0.1, id="with a loader, what lies between the phases of the model"),
        pytest.param(FLAG_NO_LOADER, 0.7, id="without one, the forward too: it may be a fetch"),
        pytest.param(FLAG_TAIL, 0.0, id="what follows the last step is none"),
    ],
)
def test_where_only_a_stack_can_tell_is_looked_into(flags: int, share: float) -> None:
    reader: Any = None
    follower = Follower(7, "rank", 1, 0, reader, Position("gap", 1, 0, 0, 0, False), 0)
    follower.note_steps([row(flags, forward=60, backward=30, gap=8, clip=2)])
    assert follower.outside_share == pytest.approx(share)


def follower(steps: list[tuple[int, tuple[int, ...]]]) -> Follower:
    reader: Any = None
    made = Follower(7, "rank", 1, 0, reader, Position("gap", 1, 0, 0, 0, False), 0)
    made.note_steps(steps)
    return made


COMPILES, USUAL = row(0, t_end=40_000), row(0)
EVALUATES, SAVES = row(0, t_end=60_000, evaluation=59_900), row(0, t_end=30_000, checkpoint=29_900)


@pytest.mark.parametrize(
    ("steps", "p99_ms"),
    [
        pytest.param([COMPILES, *[USUAL] * 30], 100, id="the first steps compile"),
        pytest.param([COMPILES, *[USUAL] * 5], 40_000, id="of few steps nobody knows what is usual"),
        pytest.param(
            [*[USUAL] * 20, EVALUATES, SAVES, *[USUAL] * 9], 100, id="evaluation and checkpoints are set aside"
        ),
        pytest.param([*[USUAL] * 20, row(0, t_end=5_000)], 5_000, id="a slow step is one"),
    ],
)
def test_the_slowest_usual_step_is_the_measure_of_a_hang(steps: list[Any], p99_ms: int) -> None:
    assert follower(steps).step_p99_ns() == p99_ms * 1_000_000


def stream(**ms: float) -> tuple[int, tuple[int, ...]]:
    """A step on the GPU's stream, from its phases in milliseconds."""
    given = {f"{name}_ns": round(value * 1_000_000) for name, value in ms.items()}
    return 0, tuple(given.get(name, 0) for name in GPU_STEP_FIELDS)


BUSY = stream(forward=33, backward=60, optimizer=4, gap=2)
EVALUATED = stream(forward=33, backward=60, optimizer=4, gap=2000)


def test_a_loop_that_reads_its_loss_in_each_step_waits_where_the_gpu_computes() -> None:
    reads = follower([row(0, input_wait=1, forward=5, backward=20, optimizer=2, gap=72)] * 30)
    assert reads.outside_share == pytest.approx(0.72) and reads.idle_share is None
    reads.note_gpu_steps([BUSY] * 9)
    assert reads.idle_share is None, "too few"
    reads.note_gpu_steps([*[BUSY] * 11, EVALUATED])
    assert reads.idle_share == pytest.approx(2 / 99)


def test_without_a_loader_the_stream_does_not_tell_where_the_model_begins() -> None:
    unfed = follower([row(FLAG_NO_LOADER, forward=60, backward=30)] * 30)
    unfed.note_gpu_steps([BUSY] * 20)
    assert unfed.idle_share is None


def test_who_stands_in_an_evaluation_is_measured_by_whole_steps() -> None:
    assert follower([*[USUAL] * 20, EVALUATES]).step_p99_ns(whole=True) == 60_000_000_000


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


@pytest.mark.parametrize(("errors", "told"), [(ERRORS_MAX - 1, False), (ERRORS_MAX, True)])
def test_a_recorder_that_gave_up_is_a_gap_from_that_step_on(tmp_path: Path, errors: int, told: bool) -> None:
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
    assert ("stands still since step 41" in gap.reason) is told


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
    assert rank.idle_share == pytest.approx(2 / 99) and rank.outside_share == pytest.approx(0.72)
    followers.close()
    writer.close()
