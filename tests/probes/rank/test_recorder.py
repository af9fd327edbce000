"""The recorder gives up or leaves in order, whatever fails."""

from __future__ import annotations

import fcntl
import gc
import os
import types
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.run.hangs.watched_ranks import Places, Watched
from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.probes.rank.layout import ERRORS_MAX, PHASE_CODE, ROLE_RANK
from rn50_advisor.probes.rank.patches.wrappers import quietly
from rn50_advisor.probes.rank.recorder import Recorder
from rn50_advisor.probes.rank.ring import Ring

pytest.importorskip("torch")  # imported in each process that the recorder is in


torch = types.SimpleNamespace(is_grad_enabled=lambda: True)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(torch, str(tmp_path))


def as_rank(recorder: Recorder) -> Ring:
    """The recorder of a process that trains, with a ring that can be read."""
    account: Any = recorder.own_account()
    ring = Ring(f"{recorder.folder}/rank-{os.getpid()}.ring", slots=16, role=ROLE_RANK, rank=0)
    account.become_rank(ring, lambda: 0)
    account.phase = PHASE_CODE["gap"]
    ring.phase(account.phase, 7, 5000)
    return ring


def test_a_recorder_that_has_given_up_says_so_and_the_rank_does_not_look_stuck(recorder: Recorder) -> None:
    ring = as_rank(recorder)
    reader = RingReader(Path(ring.path))
    made_ns = reader.identity.created_ns
    watched = Watched(0, os.getpid(), Path(ring.path), made_ns, steps=5, outside_share=0.0, p99_ns=0)
    places = Places()
    places.keep([watched])
    for _ in range(ERRORS_MAX - 1):
        quietly(recorder, lambda: 1 // 0)
    assert recorder.active and places.position(watched) is not None
    quietly(recorder, lambda: 1 // 0)
    assert not recorder.active and reader.position().errors == ERRORS_MAX
    assert places.position(watched) is None
    assert not reader.position().ended
    recorder.leave()
    assert reader.position().ended, "it left by itself: nobody killed it"
    reader.close()
    places.close()


def test_facts_that_cannot_be_written_do_not_make_an_orderly_end_a_death(
    recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    reader = RingReader(Path(as_rank(recorder).path))
    monkeypatch.setattr(recorder.facts, "write", lambda: 1 / 0)
    recorder.leave()
    assert reader.position().ended and reader.position().phase == "ended"
    reader.close()


@pytest.mark.parametrize("alive", [True, False])
def test_a_worker_makes_no_ring_that_nobody_would_remove(recorder: Recorder, alive: bool) -> None:
    with Path(recorder.folder, "owner.lock").open("w") as lock:
        if alive:
            fcntl.flock(lock, fcntl.LOCK_EX)
        recorder.become_worker(0)
    assert len(list(Path(recorder.folder).glob("worker-*"))) == alive
    assert recorder.active == alive


def test_a_retired_recorder_marks_nothing_in_this_process_or_a_forked_one_and_can_be_resumed(
    recorder: Recorder, tmp_path: Path
) -> None:
    recorder.garbage.listen()
    reader = RingReader(Path(as_rank(recorder).path))
    recorder.retire(None)
    assert reader.position().ended and not recorder.active and recorder.account is None
    assert recorder.garbage.callback not in gc.callbacks
    recorder.forget()  # as in a forked child
    assert not recorder.active
    recorder.resume(str(tmp_path / "another"))
    assert recorder.active and recorder.facts._folder == recorder.folder == str(tmp_path / "another")
    assert recorder.garbage.callback in gc.callbacks
    recorder.retire(None)
    reader.close()
