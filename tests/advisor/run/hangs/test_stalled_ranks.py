"""Evidence on a stalled rank: its collective from the ring's header, and torch's flight recorder where it was written."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.hangs import stalled_ranks
from rn50_advisor.advisor.run.hangs.stalled_ranks import StalledRanks, absent_ranks
from rn50_advisor.advisor.run.hangs.watched_ranks import Places, Watched
from rn50_advisor.advisor.run.stacks.stack_looker import Dump, Looker
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack
from rn50_advisor.probes.rank.layout import COLLECTIVE_KINDS, COLLECTIVE_OFFSET, PHASE_CODE, ROLE_RANK
from rn50_advisor.probes.rank.ring import Ring

FIRST = COLLECTIVE_OFFSET // 8


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    made = Ring(str(tmp_path / f"rank-{os.getpid()}.ring"), slots=16, role=ROLE_RANK, rank=1)
    made.phase(PHASE_CODE["backward"], 7, 5000)
    yield made


def begins(ring: Ring, *words: int) -> None:
    for place, word in enumerate(words):
        ring.words[FIRST + place] = word


def rows(rank: Watched, dump: Dump | None, others: Sequence[Watched] = ()) -> list[dict[str, Any]]:
    """Rows for this rank, and for ranks whose position is unknown."""
    places, looker = Places(), Looker(dump=dump or (lambda pid: pytest.fail("nobody shall look into it")))
    places.keep([rank])
    ranks = StalledRanks(places=places, looker=looker, with_stacks=dump is not None, post=lambda gap: None)
    at = places.position(rank)
    assert at is not None
    try:
        return ranks.rows([(rank, at)], [*others, rank], 5000)
    finally:
        places.close()


def watched(ring: Ring, **given: Any) -> Watched:
    usual = {"steps": 5, "outside_share": 0.0, "p99_ns": 0}
    return Watched(1, os.getpid(), Path(ring.path), 0, **{**usual, **given})


def row_of(ring: Ring, dump: Dump | None = None) -> dict[str, Any]:
    (row,) = rows(watched(ring), dump)
    return row


def test_a_rank_inside_a_collective_says_which(ring: Ring) -> None:
    begins(ring, 12, COLLECTIVE_KINDS.index("broadcast"), 99, 4, 1)
    found = row_of(ring)["collective"]
    assert (found["begun"], found["kind"], found["group"], found["size"]) == (12, "broadcast", 99, 4)
    assert found["inside_s"] > 0


def test_a_rank_that_has_left_its_last_collective_is_in_none(ring: Ring) -> None:
    begins(ring, 12, 0, 99, 4, 0)
    assert row_of(ring)["collective"]["inside_s"] is None


@pytest.mark.parametrize(
    "words", [(), (0, 0, 0, 0, 0), (3, 77, 1, 2, 5)], ids=["nothing", "none begun", "a newer kind"]
)
def test_an_empty_header_gives_no_collective(ring: Ring, words: tuple[int, ...]) -> None:
    begins(ring, *words)
    assert "collective" not in row_of(ring)


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
def test_a_flight_recorder_dump_is_kept_if_it_is_of_this_stall(ring: Ring, text: str, kept: bool) -> None:
    Path(ring.path).with_name(f"flight-{os.getpid()}.json").write_text(text)
    assert row_of(ring).get("flight") == ([{"entries": []}] if kept else None)


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
    found = row_of(ring, lambda pid: answer)
    assert found["user"]["function"] == function
    assert found.get("gap") == (REFUSED.reason if answer is REFUSED else None)


@pytest.mark.parametrize("stack", [[{"function": "f"}], [{"function": "f", "file": "/a.py", "line": "x"}], 3, []])
def test_what_is_no_stack_is_none(ring: Ring, stack: Any) -> None:
    Path(ring.path).with_name(f"flight-{os.getpid()}.json").write_text(json.dumps({"since_ns": 5000, "stack": stack}))
    assert "frames" not in row_of(ring)


def test_a_stall_is_reported_without_reading_the_users_files(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("linecache.getline", lambda *_: pytest.fail("the server they lie on may be what hangs"))
    stacks = (ThreadStack(None, "MainThread", True, False, (STUCK,)),)
    assert row_of(ring, lambda pid: stacks)["user"]["line"] == 33


def test_the_kernel_says_what_the_thread_does(ring: Ring) -> None:
    found = row_of(ring)
    assert found["state"] == "R" and found["cpu_s"] > 0.0 and isinstance(found["wchan"], str)


@pytest.mark.parametrize(
    ("file", "compiles"), [("/e/torch/_dynamo/convert_frame.py", True), ("/e/torch/_dynamo/eval_frame.py", False)]
)
def test_a_compiler_at_work_in_any_thread_is_reported(ring: Ring, file: str, compiles: bool) -> None:
    other = ThreadStack(None, "Dummy-1", False, True, (Frame("_compile", file, 9),))
    stacks = (ThreadStack(None, "MainThread", True, False, (STUCK,)), other)
    assert row_of(ring, lambda pid: stacks)["compiles"] == compiles


def test_a_rank_that_has_not_begun_to_train_is_reported_with_its_stack(
    ring: Ring, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = tmp_path / "where the user stands"
    users.mkdir()
    (users / f"flight-{os.getppid()}.json").write_text(json.dumps({"since_ns": 5000, "dumps": [{"entries": []}]}))
    monkeypatch.chdir(users)
    stacks = (ThreadStack(None, "MainThread", True, False, (STUCK,)),)
    monkeypatch.setattr(
        stalled_ranks, "absent_ranks", lambda seen, group: {0: os.getppid()} if seen == {1: os.getpid()} else {}
    )
    one, other = rows(watched(ring, steps=0, group=2), lambda pid: stacks)
    assert (one["rank"], one["phase"], other["rank"], other["phase"], other["step"]) == (1, "backward", 0, "start", 0)
    assert other["user"]["line"] == 33 and other["since_ns"] == 5000
    assert "flight" not in other, "a file of that name in the user's folder is none of ours"


def test_a_rank_whose_recorder_has_given_up_is_not_absent(ring: Ring, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[dict[int, int], int]] = []
    monkeypatch.setattr(stalled_ranks, "absent_ranks", lambda seen, group: asked.append((dict(seen), group)) or {})
    waits = watched(ring, steps=0, group=2)
    given_up = replace(waits, rank=0, pid=os.getppid())  # there is no place for it, since its header stands still
    assert len(rows(waits, None, [given_up])) == 1
    assert asked == [({0: os.getppid(), 1: os.getpid()}, 2)]


TRAIN = "python\0train.py\0"

SPAWN = "python\0-c\0spawn_main(pipe_handle=%d)\0"


def process(root: Path, pid: int, *, parent: int = 10, command: str = TRAIN, rank: int | None = None) -> None:
    folder = root / f"proc/{pid}"
    folder.mkdir(parents=True)
    fields = ["0"] * 50
    (folder / "stat").write_text(f"{pid} (python) S {parent} {' '.join(fields)}")
    (folder / "cmdline").write_text(command)
    variable = "" if rank is None else f"RANK={rank}\0"
    (folder / "environ").write_text(f"PATH=/bin\0LOCAL_RANK=7\0{variable}X=1\0")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "proc/self").mkdir(parents=True)
    process(tmp_path, 10, parent=1, command="torchrun\0")
    return tmp_path


def test_absent_ranks_are_known_by_the_launchers_variable(root: Path) -> None:
    for n in range(4):
        process(root, 20 + n, rank=n)
    assert absent_ranks({1: 21, 2: 22}, 4, root=root) == {0: 20, 3: 23}
    assert absent_ranks({n: 20 + n for n in range(4)}, 4, root=root) == {}


def test_one_that_is_left_has_the_number_that_is_left(root: Path) -> None:
    for n in range(2):
        process(root, 20 + n, command=SPAWN % n)
    assert absent_ranks({1: 21}, 2, root=root) == {0: 20}
    assert absent_ranks({1: 21}, 3, root=root) == {}, "which of two numbers it has, nobody knows"


def test_other_processes_are_none(root: Path) -> None:
    process(root, 21, rank=1)
    process(root, 30, parent=21, rank=0)  # a loader's worker
    process(root, 31, command="python\0-c\0resource_tracker\0", rank=0)
    process(root, 32, rank=5)  # of another node's
    assert absent_ranks({1: 21}, 2, root=root) == {}


def test_a_process_that_has_gone_is_none(root: Path) -> None:
    assert absent_ranks({1: 21}, 2, root=root) == {}


def test_of_a_group_whose_size_is_not_known_nobody_is_missing(root: Path) -> None:
    for n in range(2):
        process(root, 20 + n, command=SPAWN % n)
    assert absent_ranks({1: 21}, 1, root=root) == {}
