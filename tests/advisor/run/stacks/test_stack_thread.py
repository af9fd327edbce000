"""The thread that looks into ranks: it reports hangs with their stacks even if its samples fail."""

from __future__ import annotations

import os
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import data_of
from rn50_advisor.advisor.run.hangs.watched_ranks import Places, Watched
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.run.stacks.batch_making import Maker
from rn50_advisor.advisor.run.stacks.stack_looker import Looker
from rn50_advisor.advisor.run.stacks.stack_thread import StackWatch
from rn50_advisor.probes.documents.event_documents import StackProfile, StallEnd, StallSeen
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack
from rn50_advisor.probes.rank.layout import PHASE_CODE, ROLE_RANK
from rn50_advisor.probes.rank.ring import Ring

STUCK = (ThreadStack(os.getpid(), "MainThread", True, False, (Frame("find_batch", "/job/train.py", 33),)),)


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    """Of a rank that has been in its backward pass since long ago."""
    ring = Ring(str(tmp_path / f"rank-{os.getpid()}.ring"), slots=16, role=ROLE_RANK, rank=1)
    ring.phase(PHASE_CODE["backward"], 7, 5000)
    yield ring


def standing(ring: Ring, **given: Any) -> Watched:
    return Watched(1, os.getpid(), Path(ring.path), 0, **{"steps": 5, "outside_share": 0.0, "p99_ns": 0, **given})


def test_samples_that_break_off_do_not_take_the_watch_for_hangs_along(ring: Ring) -> None:
    gaps: list[Any] = []

    def breaks(pid: int) -> Any:
        raise RuntimeError("no such profile")

    rank, places = standing(ring, outside_share=0.9), Places()
    places.keep([rank])
    at = places.position(rank)
    assert at is not None
    watch = StackWatch(RunOptions(), post=gaps.append, looker=Looker(profile=breaks))
    watch._sample([(rank, at)])
    places.close()
    assert not watch.sampling and "no such profile" in gaps[0].reason


def test_a_rank_that_makes_its_own_batches_is_profiled_as_one(ring: Ring) -> None:
    news: list[Any] = []
    rank = standing(ring, outside_share=0.9)
    frames = STUCK[0].frames, (Frame("fetch", "/env/torch/utils/data/_utils/fetch.py", 54), *STUCK[0].frames)
    profile = tuple(CountedStack(None, "MainThread", stack, 9) for stack in frames)
    watch = StackWatch(RunOptions(), post=news.append, looker=Looker(profile=lambda pid: profile, dump=lambda pid: ()))
    watch.makers = (Maker(1, os.getpid()),)
    watch._places.keep([rank])
    at = watch._places.position(rank)
    assert at is not None
    watch._sample([(rank, at)])
    watch._places.close()
    (data,) = [found for event in news if (found := data_of(event, StackProfile)) is not None]
    assert data["making"] == [{"user": None, "awaits": None, "count": 9}]


def test_a_stalled_rank_is_reported_with_its_stack_and_so_is_the_end_of_the_stall(ring: Ring) -> None:
    news: queue.Queue[Any] = queue.Queue()
    options = RunOptions(poll_s=0.01, stall_after_s=0.05)
    watch = StackWatch(options, post=news.put, looker=Looker(dump=lambda pid: STUCK, profile=lambda pid: ()))
    watch.watched = (standing(ring),)
    watch.start()
    try:
        seen = data_of(news.get(timeout=30), StallSeen)
        assert seen is not None
        (row,) = seen["ranks"]
        assert (row["rank"], row["phase"], row["step"]) == (1, "backward", 7)
        assert [frame["function"] for frame in row["frames"]] == ["find_batch"]
        ring.phase(PHASE_CODE["forward"], 8, time.perf_counter_ns())
        while (end := data_of(news.get(timeout=30), StallEnd)) is None:
            pass
        assert end["id"] == seen["id"]
        assert end["stalled_s"] >= seen["stalled_s"]
    finally:
        watch.finish(30)


def test_a_stall_is_over_when_the_job_is(ring: Ring) -> None:
    news: queue.Queue[Any] = queue.Queue()
    watch = StackWatch(RunOptions(poll_s=0.01, stall_after_s=0.05, stacks=False), post=news.put, looker=Looker())
    watch.watched = (standing(ring),)
    watch.start()
    seen = data_of(news.get(timeout=30), StallSeen)
    watch.finish(30)
    posted = [news.get_nowait() for _ in range(news.qsize())]
    assert seen is not None
    assert [end["id"] for event in posted if (end := data_of(event, StallEnd)) is not None] == [seen["id"]]


def test_a_thread_that_breaks_says_so(ring: Ring) -> None:
    news: queue.Queue[Any] = queue.Queue()
    watch = StackWatch(RunOptions(poll_s=0.01), post=news.put)
    watch.watched = (None,)  # type: ignore[assignment]
    watch.start()
    gap = news.get(timeout=30)
    watch.finish(30)
    assert isinstance(gap, ProbeGap)
    assert gap.reason.startswith("watching for hangs stopped: AttributeError")
