"""What is told of a rank that stands still: its collective by its ring's header, and torch's flight recorder where it was written down."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from advisor.core.metrics import ProbeGap
from advisor.run import stacks as stacks_module
from advisor.run.options import RunOptions
from advisor.run.rings import RingReader
from advisor.run.stackbudget import StackBudget
from advisor.run.stacks import StackWatch, Watched
from advisor.run.stalls import StallState
from probes.host.stack_profile import CountedStack
from probes.host.stacks import Frame, ThreadStack
from probes.rank.layout import COLLECTIVE_KINDS, COLLECTIVE_OFFSET, PHASE_CODE, ROLE_RANK
from probes.rank.ring import Ring

FIRST = COLLECTIVE_OFFSET // 8


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    made = Ring(str(tmp_path / f"rank-{os.getpid()}.ring"), slots=16, role=ROLE_RANK, rank=1)
    made.phase(PHASE_CODE["backward"], 7, 5000)
    yield made


def begins(ring: Ring, *words: int) -> None:
    for place, word in enumerate(words):
        ring.words[FIRST + place] = word


def told(ring: Ring, watch: StackWatch | None = None) -> dict[str, Any]:
    reader = RingReader(Path(ring.path))
    watch = watch or StackWatch(RunOptions(stacks=False), post=lambda news: None)
    made_ns = reader.identity.created_ns
    watch._readers[Path(ring.path), made_ns] = reader
    watched = Watched(1, os.getpid(), Path(ring.path), made_ns, steps=5, outside_share=0.0, p99_ns=0)
    try:
        return watch._stalled_rank(watched, reader.position())
    finally:
        reader.close()


def test_a_rank_inside_a_collective_says_which(ring: Ring) -> None:
    begins(ring, 12, COLLECTIVE_KINDS.index("broadcast"), 99, 4, 1)
    found = told(ring)["collective"]
    assert (found["begun"], found["kind"], found["group"], found["size"]) == (12, "broadcast", 99, 4)
    assert found["inside_s"] > 0


def test_a_rank_that_has_left_its_last_collective_is_in_none(ring: Ring) -> None:
    begins(ring, 12, 0, 99, 4, 0)
    assert told(ring)["collective"]["inside_s"] is None


@pytest.mark.parametrize(
    "words", [(), (0, 0, 0, 0, 0), (3, 77, 1, 2, 5)], ids=["nothing", "none begun", "a newer kind"]
)
def test_where_the_header_says_nothing_nothing_is_told(ring: Ring, words: tuple[int, ...]) -> None:
    begins(ring, *words)
    assert "collective" not in told(ring)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        (json.dumps({"since_ns": 5000, "dumps": [{"entries": []}]}), True),
        (json.dumps({"since_ns": 4999, "dumps": [{"entries": []}]}), False),  # of an earlier stand
        ("{", False),
        ("[]", False),
        (json.dumps({"since_ns": 5000, "dumps": 3}), False),
    ],
)
def test_a_flight_recorders_dump_is_told_where_it_is_of_this_stand(ring: Ring, text: str, kept: bool) -> None:
    Path(ring.path).with_name(f"flight-{os.getpid()}.json").write_text(text)
    assert told(ring).get("flight") == ([{"entries": []}] if kept else None)


STUCK = Frame("find_batch", "/job/train.py", 33)
OWN = [
    {"function": "wait", "file": "/usr/lib/python3.11/threading.py", "line": 9},
    {"function": "go", "file": "/job/a.py", "line": 3},
]
REFUSED = ProbeGap("stacks", "pid:1", "not permitted to read the process's memory")


@pytest.mark.parametrize(
    ("answer", "function"),
    [(REFUSED, "go"), ((ThreadStack(None, "MainThread", True, False, (STUCK,)),), "find_batch")],
    ids=["nobody may look into it", "py-spy may"],
)
def test_a_ranks_own_word_is_taken_where_nobody_may_look_into_it(ring: Ring, answer: Any, function: str) -> None:
    Path(ring.path).with_name(f"flight-{os.getpid()}.json").write_text(json.dumps({"since_ns": 5000, "stack": OWN}))
    found = told(ring, StackWatch(RunOptions(), post=lambda news: None, dump=lambda pid: answer))
    assert found["user"]["function"] == function
    assert found.get("gap") == (REFUSED.reason if answer is REFUSED else None)


@pytest.mark.parametrize("stack", [[{"function": "f"}], [{"function": "f", "file": "/a.py", "line": "x"}], 3, []])
def test_what_is_no_stack_is_none(ring: Ring, stack: Any) -> None:
    Path(ring.path).with_name(f"flight-{os.getpid()}.json").write_text(json.dumps({"since_ns": 5000, "stack": stack}))
    assert "frames" not in told(ring)


def test_a_stall_is_told_without_a_look_at_the_users_files(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linecache.getline", lambda *_: pytest.fail("the server they lie on may be what hangs"))
    stacks = (ThreadStack(None, "MainThread", True, False, (STUCK,)),)
    assert told(ring, StackWatch(RunOptions(), post=lambda news: None, dump=lambda pid: stacks))["user"]["line"] == 33


def test_the_kernel_says_what_the_thread_does(ring: Ring) -> None:
    found = told(ring)
    assert found["state"] == "R" and found["cpu_s"] > 0.0 and isinstance(found["wchan"], str)


def test_samples_that_break_off_do_not_take_the_watch_for_hangs_along(ring: Ring) -> None:
    gaps: list[Any] = []

    def breaks(pid: int) -> Any:
        raise RuntimeError("no such profile")

    watch = StackWatch(RunOptions(), post=gaps.append, profile=breaks)
    watch._budget = StackBudget(now_s=0.0, share=1.0, period_s=0.0, first=9, dense_s=0.0)
    reader = RingReader(Path(ring.path))
    rank = Watched(1, os.getpid(), Path(ring.path), reader.identity.created_ns, steps=5, outside_share=0.9, p99_ns=0)
    watch._look_outside([(rank, reader.position())])
    reader.close()
    assert not watch.sampling and "no such profile" in gaps[0].reason


@pytest.mark.parametrize("asleep_share", [0.0, 0.3])
def test_who_sleeps_in_its_steps_is_looked_at_with_and_without_its_sleep(ring: Ring, asleep_share: float) -> None:
    events: list[Any] = []
    frames = (Frame("read", "/lib/socket.py", 7), STUCK)
    watch = StackWatch(
        RunOptions(),
        post=events.append,
        dump=lambda pid: (),
        profile=lambda pid: (
            CountedStack(None, "MainThread", frames, 80),
            CountedStack(None, "MainThread", (STUCK,), 9),
        ),
        profile_awake=lambda pid: (CountedStack(None, "MainThread", (STUCK,), 8),),
    )
    watch._budget = StackBudget(now_s=0.0, share=1.0, period_s=0.0, first=9, dense_s=0.0)
    reader = RingReader(Path(ring.path))
    rank = Watched(1, os.getpid(), Path(ring.path), reader.identity.created_ns, steps=5, outside_share=0.0, p99_ns=0)
    rank = replace(rank, asleep_share=asleep_share)
    watch._keep_readers((rank,))
    for _ in range(2):  # the second time comes too soon
        watch._look_outside([(rank, reader.position())])
    watch._keep_readers(())
    reader.close()
    told = [[(row["count"], row["awake"]) for row in e.data["stacks"]] for e in events if e.kind == "profile"]
    assert told == ([[(80, 0), (9, 8)]] if asleep_share else [])


@pytest.mark.parametrize(
    ("outside_share", "passes_s", "awake"),
    [
        pytest.param(0.3, (0, 130, 260, 390, 520, 650), [True, False, False, False, False, True], id="outside, too"),
        pytest.param(0.0, (0, 130, 260, 390, 520, 650), [True, True], id="asleep alone"),
    ],
)
def test_its_sleep_is_looked_at_less_often_than_the_time_outside_the_model(
    ring: Ring, monkeypatch: pytest.MonkeyPatch, outside_share: float, passes_s: tuple[int, ...], awake: list[bool]
) -> None:
    events: list[Any] = []
    stacks = (CountedStack(None, "MainThread", (STUCK,), 9),)
    watch = StackWatch(RunOptions(), post=events.append, profile=lambda pid: stacks, profile_awake=lambda pid: stacks)
    watch._budget = StackBudget(now_s=0.0, share=1.0, period_s=0.0, first=9, dense_s=0.0)
    watch._dump = lambda pid: REFUSED
    reader = RingReader(Path(ring.path))
    rank = Watched(1, os.getpid(), Path(ring.path), reader.identity.created_ns, steps=5, outside_share=0.0, p99_ns=0)
    rank = replace(rank, asleep_share=0.3, outside_share=outside_share)
    watch._keep_readers((rank,))
    for now_s in passes_s:
        monkeypatch.setattr(stacks_module.time, "monotonic", lambda now_s=now_s: 1000.0 + now_s)
        watch._look_outside([(rank, reader.position())])
    monkeypatch.undo()
    watch._keep_readers(())
    reader.close()
    assert ["awake" in event.data["stacks"][0] for event in events if event.kind == "profile"] == awake


def test_that_its_sleep_could_not_be_looked_at_is_a_gap_beside_its_profile(ring: Ring) -> None:
    news: list[Any] = []
    stacks = (CountedStack(None, "MainThread", (STUCK,), 9),)
    gap = ProbeGap("stacks", "pid:1", "py-spy did not answer in 12 s")
    watch = StackWatch(RunOptions(), post=news.append, profile=lambda pid: stacks, profile_awake=lambda pid: gap)
    watch._budget = StackBudget(now_s=0.0, share=1.0, period_s=0.0, first=9, dense_s=0.0)
    reader = RingReader(Path(ring.path))
    rank = Watched(1, os.getpid(), Path(ring.path), reader.identity.created_ns, steps=5, outside_share=0.0, p99_ns=0)
    rank = replace(rank, asleep_share=0.3)
    watch._keep_readers((rank,))
    for _ in range(2):  # the second time comes too soon
        watch._look_outside([(rank, reader.position())])
    watch._keep_readers(())
    reader.close()
    told, event = news
    assert told == gap and event.kind == "profile" and "awake" not in event.data["stacks"][0]


@pytest.mark.parametrize(
    ("file", "compiles"), [("/e/torch/_dynamo/convert_frame.py", True), ("/e/torch/_dynamo/eval_frame.py", False)]
)
def test_a_compiler_at_work_in_any_thread_is_told(ring: Ring, file: str, compiles: bool) -> None:
    other = ThreadStack(None, "Dummy-1", False, True, (Frame("_compile", file, 9),))
    stacks = (ThreadStack(None, "MainThread", True, False, (STUCK,)), other)
    watch = StackWatch(RunOptions(), post=lambda news: None, dump=lambda pid: stacks)
    assert told(ring, watch)["compiles"] == compiles


def test_a_rank_that_has_not_begun_to_train_is_told_with_its_stack(
    ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[Any] = []
    users = tmp_path / "where the user stands"
    users.mkdir()
    (users / f"flight-{os.getppid()}.json").write_text(json.dumps({"since_ns": 5000, "dumps": [{"entries": []}]}))
    monkeypatch.chdir(users)
    stacks = (ThreadStack(None, "MainThread", True, False, (STUCK,)),)
    monkeypatch.setattr(
        stacks_module, "absent_ranks", lambda seen, group: {0: os.getppid()} if seen == {1: os.getpid()} else {}
    )
    watch = StackWatch(RunOptions(), post=events.append, dump=lambda pid: stacks)
    reader = RingReader(Path(ring.path))
    made_ns = reader.identity.created_ns
    waits = Watched(1, os.getpid(), Path(ring.path), made_ns, steps=0, outside_share=0.0, p99_ns=0, group=2)
    watch._tell_stall(StallState("stall-1", 5000, 9), [(waits, reader.position())], [waits])
    reader.close()
    one, other = events[0].data["ranks"]
    assert (one["rank"], one["phase"], other["rank"], other["phase"], other["step"]) == (1, "backward", 0, "start", 0)
    assert other["user"]["line"] == 33 and other["since_ns"] == 5000
    assert "flight" not in other, "a file of that name in the user's folder is none of ours"


def test_a_rank_whose_recorder_has_given_up_is_not_absent(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[dict[int, int], int]] = []
    monkeypatch.setattr(stacks_module, "absent_ranks", lambda seen, group: asked.append((dict(seen), group)) or {})
    watch = StackWatch(RunOptions(stacks=False), post=lambda news: None)
    reader = RingReader(Path(ring.path))
    made_ns = reader.identity.created_ns
    waits = Watched(1, os.getpid(), Path(ring.path), made_ns, steps=0, outside_share=0.0, p99_ns=0, group=2)
    given_up = replace(waits, rank=0, pid=os.getppid())  # there is no place for it, since its header stands still
    watch._tell_stall(StallState("stall-1", 5000, 9), [(waits, reader.position())], [given_up, waits])
    reader.close()
    assert asked == [({0: os.getppid(), 1: os.getpid()}, 2)]
