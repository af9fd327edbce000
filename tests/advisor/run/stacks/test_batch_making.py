"""Looks at the stacks of processes that make batches: which frames count, whose turn it is, when to give up."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.advisor.run.rings.ring_followers import Followers
from rn50_advisor.advisor.run.stacks.batch_making import BatchMakingSampler, Maker, counted_making, line_in_making
from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack

PACKAGES = "/env/lib/python3.11/site-packages"
FETCH = Frame("fetch", f"{PACKAGES}/torch/utils/data/_utils/fetch.py", 54)
LOOP = Frame("_worker_loop", f"{PACKAGES}/torch/utils/data/_utils/worker.py", 351)
BLUR, GETITEM, MAIN = (
    Frame("blur", "/job/data.py", 21),
    Frame("__getitem__", "/job/data.py", 47),
    Frame("main", "/job/train.py", 9),
)
COLLATE = Frame("collate_fn", "/job/data.py", 60)
ROLL = Frame("roll", f"{PACKAGES}/numpy/_core/numeric.py", 1200)
PILLOW = Frame("load", f"{PACKAGES}/PIL/ImageFile.py", 300)
IDLE = Frame("get", "/usr/lib/python3.11/multiprocessing/queues.py", 113)


def thread(*frames: Frame, number: int = 7, main: bool = True) -> ThreadStack:
    return ThreadStack(number, "MainThread" if main else "pin", main, True, frames)


@pytest.mark.parametrize(
    ("frames", "found"),
    [
        ((ROLL, BLUR, GETITEM, FETCH, LOOP, MAIN), (BLUR, GETITEM)),
        ((ROLL, BLUR, PILLOW, GETITEM, FETCH, LOOP, MAIN), (BLUR, GETITEM)),
        ((PILLOW, GETITEM, FETCH, LOOP, MAIN), (GETITEM,)),
        ((ROLL, COLLATE, FETCH, LOOP, MAIN), (COLLATE,)),
        ((PILLOW, FETCH, LOOP, MAIN), ()),  # a library's data set: the caller's line is none of it
    ],
)
def test_the_users_lines_below_the_fetcher_are_found(frames: tuple[Frame, ...], found: tuple[Frame, ...]) -> None:
    row = line_in_making([thread(*frames)], None)
    user, *callers = [{"function": f.function, "file": f.file, "line": f.line} for f in found] or [None]
    assert row == {"user": user, "awaits": None} | ({"callers": callers} if callers else {})


def test_a_batch_that_torch_puts_together_is_no_sample() -> None:
    assert (
        line_in_making(
            [
                thread(
                    ROLL, Frame("default_collate", f"{PACKAGES}/torch/utils/data/_utils/collate.py", 240), FETCH, LOOP
                )
            ],
            None,
        )
        is None
    )
    assert line_in_making([thread(MAIN)], None) is None


def test_of_many_callers_the_innermost_are_kept() -> None:
    nested = [Frame("walk", "/job/data.py", line) for line in range(40)]
    row = line_in_making([thread(*nested, FETCH, LOOP)], None)
    assert row is not None and [frame["line"] for frame in row["callers"]] == list(range(1, 9))


SEMAPHORE = Frame("__enter__", "/usr/lib/python3.11/multiprocessing/synchronize.py", 95)
RECEIVE, CALL = (
    Frame("recv", "/usr/lib/python3.11/multiprocessing/connection.py", 250),
    Frame("_callmethod", "/usr/lib/python3.11/multiprocessing/managers.py", 822),
)
FILE_LOCK = Frame("acquire", f"{PACKAGES}/filelock/_api.py", 330)


@pytest.mark.parametrize(
    ("frames", "awaits"),
    [
        ((SEMAPHORE, GETITEM, FETCH), "lock"),
        ((FILE_LOCK, FETCH), "lock"),
        ((RECEIVE, CALL, BLUR, GETITEM, FETCH), "server"),
        ((RECEIVE, GETITEM, FETCH), None),  # a pipe of their own
        ((GETITEM, FETCH, SEMAPHORE), None),  # outside of the fetcher
    ],
)
def test_a_wait_for_what_all_workers_share_is_found(frames: tuple[Frame, ...], awaits: str | None) -> None:
    row = line_in_making([thread(*frames)], None)
    assert row is not None and row["awaits"] == awaits


@pytest.mark.parametrize(
    ("line", "awaits"),
    [
        ("self.lock.acquire()", "lock"),
        ("fcntl.flock(self.file, fcntl.LOCK_EX)", "lock"),
        ("with self.lock:  # of threads", None),
        ("self.acquired += 1", None),
    ],
)
def test_locks_that_leave_no_frame_are_known_by_the_users_line(tmp_path: Path, line: str, awaits: str | None) -> None:
    file = tmp_path / "data.py"
    file.write_text(f"{line}\n")
    own = Frame("__getitem__", str(file), 1)
    assert (line_in_making([thread(own, FETCH)], None) or {})["awaits"] == awaits
    assert (line_in_making([thread(ROLL, own, FETCH)], None) or {})["awaits"] is None, "it is inside the library"


@pytest.mark.parametrize(
    ("line", "collects"), [("if index % 8 == 0: gc.collect()", True), ("gc.disable()", False), ("# gc", False)]
)
def test_a_call_of_the_garbage_collector_is_known_by_the_users_line(tmp_path: Path, line: str, collects: bool) -> None:
    file = tmp_path / "data.py"
    file.write_text(f"{line}\n")
    own = Frame("__getitem__", str(file), 1)
    assert (line_in_making([thread(own, FETCH)], None) or {}).get("collects", False) == collects
    assert "collects" not in (line_in_making([thread(ROLL, own, FETCH)], None) or {}), "it is inside a library"


SOCKET = Frame("SocketIO.readinto", "/usr/lib/python3.11/socket.py", 706)
REDIS = Frame("read_response", f"{PACKAGES}/redis/_parsers/resp2.py", 15)


@pytest.mark.parametrize(
    ("frames", "asks"),
    [
        ((SOCKET, GETITEM, FETCH), True),
        ((REDIS, BLUR, GETITEM, FETCH), True),
        ((SOCKET, FETCH), True),  # a library's data set
        ((PILLOW, GETITEM, FETCH), False),
        ((GETITEM, FETCH, SOCKET), False),  # outside of the fetcher
        ((Frame("load", "/job/socket.py", 3), GETITEM, FETCH), False),  # the user's own file
    ],
)
def test_a_wait_for_a_servers_answer_is_found(frames: tuple[Frame, ...], asks: bool) -> None:
    assert (line_in_making([thread(*frames)], None) or {}).get("asks", False) == asks


@pytest.mark.parametrize(
    ("line", "asks"),
    [
        ("row = cursor.execute(QUERY, (index,)).fetchone()", True),
        ("data = connection.recv(1 << 16)", True),
        ("picture = executed(index)", False),
    ],
)
def test_drivers_that_leave_no_frame_are_known_by_the_users_line(tmp_path: Path, line: str, asks: bool) -> None:
    file = tmp_path / "data.py"
    file.write_text(f"{line}\n")
    own = Frame("__getitem__", str(file), 1)
    assert (line_in_making([thread(own, FETCH)], None) or {}).get("asks", False) == asks
    assert "asks" not in (line_in_making([thread(ROLL, own, FETCH)], None) or {}), "it is inside a library"


@pytest.mark.parametrize(
    "frames",
    [
        (IDLE, LOOP, MAIN),
        (Frame("default_collate", f"{PACKAGES}/torch/utils/data/_utils/collate.py", 398), FETCH, LOOP, MAIN),
    ],
)
def test_a_worker_that_waits_or_collates_makes_no_sample(frames: tuple[Frame, ...]) -> None:
    assert line_in_making([thread(*frames)], None) is None


def test_the_thread_that_makes_batches_is_looked_at() -> None:
    stacks = [thread(IDLE), thread(BLUR, FETCH, number=9, main=False)]
    assert line_in_making(stacks, 9) is not None
    assert line_in_making(stacks, None) is None and line_in_making(stacks, 11) is None


def looks(
    answer: tuple[ThreadStack, ...] | ProbeGap, *, seen: list[int]
) -> tuple[BatchMakingSampler, list[Event | ProbeGap]]:
    def dump(pid: int) -> tuple[tuple[ThreadStack, ...] | ProbeGap, float]:
        seen.append(pid)
        return answer, 0.03

    posted: list[Event | ProbeGap] = []
    budget = StackBudget(now_s=0.0, share=1.0, period_s=0.0, first=1000, dense_s=0.0)
    return BatchMakingSampler(budget, dump=dump, post=posted.append), posted


def test_workers_take_turns_and_what_is_found_is_posted() -> None:
    seen: list[int] = []
    made, posted = looks((thread(BLUR, FETCH, LOOP),), seen=seen)
    for _ in range(6):
        made.look([Maker(0, 100), Maker(0, 101), Maker(0, 102)])
    assert sorted(seen) == [100, 100, 101, 101, 102, 102]
    assert [event.kind for event in posted if isinstance(event, Event)] == ["making"] * 6


def test_where_looking_is_forbidden_it_is_given_up_after_a_few() -> None:
    seen: list[int] = []
    refused = ProbeGap("stacks", "pid:100", "not permitted to read the process's memory", "")
    made, posted = looks(refused, seen=seen)
    for _ in range(10):
        made.look([Maker(0, 100)])
    assert len(seen) == 3 and posted == [refused]


def test_nobody_is_looked_at_where_no_rank_waits() -> None:
    seen: list[int] = []
    made, posted = looks((thread(BLUR, FETCH),), seen=seen)
    made.look([])
    assert not seen and not posted


def follower(pid: int, role: str, rank: int | None, wait_share: float = 0.0) -> Any:
    recent = SimpleNamespace(wait_share=wait_share)
    return SimpleNamespace(pid=pid, role=role, rank=rank, recent=recent, made_cpu_ns=0, first_seen_ns=0)


def test_makers_are_the_workers_of_ranks_that_wait_or_a_rank_that_loads_by_itself() -> None:
    followers = Followers(Mock(), Mock(), None, watch_death=Mock())
    living = [
        follower(10, "rank", 0, 0.3),
        follower(11, "worker", 0),
        follower(12, "worker", 0),
        follower(20, "rank", 1, 0.2),
        follower(30, "rank", 2, 0.01),
        follower(31, "worker", 2),
        follower(40, "worker", None),
    ]
    followers._by_pid = {each.pid: each for each in living}
    assert [maker.pid for maker in followers.makers(0.05, 0.4, 10 * 10**9)] == [11, 12, 20]
    living[1].made_cpu_ns = living[5].made_cpu_ns = 2 * 10**9
    found = followers.makers(0.05, 0.4, 10 * 10**9)
    assert [maker.pid for maker in found] == [11, 12, 31, 20], (
        "workers of known ranks that keep cores busy, whoever waits"
    )


def test_a_call_that_repeats_the_same_work_is_named(tmp_path: Path) -> None:
    file = tmp_path / "data.py"
    file.write_text(
        "import lmdb\nclass Items:\n    def __getitem__(self, i):\n        env = lmdb.open('/data/items')\n"
    )
    row = line_in_making([thread(Frame("Items.__getitem__", str(file), 4), FETCH)], None)
    assert row is not None and row["repeats"] == "lmdb.open"


def test_a_call_through_a_whole_collection_is_named(tmp_path: Path) -> None:
    file = tmp_path / "data.py"
    file.write_text(
        "def __getitem__(self, i):\n    random.shuffle(self.others)\n    return self.names.index(self.others[0])\n"
    )
    shuffled = Frame("Random.shuffle", "/usr/lib/python3.11/random.py", 350)
    for frames, call in (
        ((shuffled, Frame("Items.__getitem__", str(file), 2)), {"kind": "permutes", "call": "random.shuffle"}),
        ((Frame("Items.__getitem__", str(file), 3),), {"kind": "searches", "call": "self.names.index"}),
        ((ROLL, Frame("Items.__getitem__", str(file), 3)), None),
    ):
        assert (line_in_making([thread(*frames, FETCH)], None) or {}).get("collection") == call


SERIES, ILOC = (
    Frame("Series.__init__", f"{PACKAGES}/pandas/core/series.py", 400),
    Frame("_LocationIndexer.__getitem__", f"{PACKAGES}/pandas/core/indexing.py", 1190),
)
READ = Frame("read_csv", f"{PACKAGES}/pandas/io/parsers/readers.py", 900)


@pytest.mark.parametrize(
    ("frames", "table"),
    [
        ((SERIES, ILOC, GETITEM, FETCH), "pandas"),
        ((ROLL, ILOC, BLUR, GETITEM, FETCH), "pandas"),
        ((SERIES, READ, GETITEM, FETCH), None),  # a file of its own for each item
        ((ROLL, GETITEM, FETCH, ILOC), None),  # outside of the fetcher
        ((SERIES, ILOC, FETCH), None),  # a library's data set
    ],
)
def test_a_table_that_rows_are_taken_from_is_named(frames: tuple[Frame, ...], table: str | None) -> None:
    assert (line_in_making([thread(*frames)], None) or {}).get("table") == table


@pytest.mark.parametrize(
    ("line", "library"),
    [
        ("image = self.images[i]", "h5py"),
        ("image = self.file['images'][i, :, 0]", None),
        ("window = self.images[i:i + 9]", None),
    ],
)
def test_an_array_in_chunks_that_single_items_are_taken_from_is_named(
    tmp_path: Path, line: str, library: str | None
) -> None:
    file = tmp_path / "data.py"
    file.write_text(line)
    read = Frame("Dataset.__getitem__", f"{PACKAGES}/h5py/_hl/dataset.py", 780)
    user = Frame("Items.__getitem__", str(file), 1)
    seen = line_in_making([thread(read, user, FETCH)], None) or {}
    assert (seen.get("array"), seen.get("chunked")) == ("h5py", library)
    assert not {"array", "chunked"} & (line_in_making([thread(user, FETCH)], None) or {}).keys()


def test_a_profiles_stacks_in_the_fetcher_are_read_as_single_ones_are_and_counted_together() -> None:
    collate, step = Frame("default_collate", f"{PACKAGES}/torch/utils/data/_utils/collate.py", 398), (ROLL, MAIN)
    profile = [
        ((SERIES, ILOC, GETITEM, FETCH, MAIN), 9),
        ((ROLL, GETITEM, FETCH, MAIN), 14),
        ((ROLL, ILOC, GETITEM, FETCH, MAIN), 11),  # elsewhere in the library
        ((ROLL, collate, FETCH, MAIN), 40),
        (step, 200),
    ]
    user = {"function": GETITEM.function, "file": GETITEM.file, "line": GETITEM.line}
    assert counted_making(CountedStack(7, "MainThread", frames, count) for frames, count in profile) == [
        {"user": user, "awaits": None, "table": "pandas", "count": 20},
        {"user": user, "awaits": None, "count": 14},
    ]
    assert counted_making([CountedStack(7, "MainThread", step, 200)]) == []


def test_a_repeated_call_of_a_profile_is_named_whatever_its_library_does(tmp_path: Path) -> None:
    file = tmp_path / "data.py"
    file.write_text(
        "import zarr\nclass Items:\n    def __getitem__(self, i):\n        return zarr.open('/data/items')[i]\n"
    )
    own, called = Frame("Items.__getitem__", str(file), 4), Frame("open", f"{PACKAGES}/zarr/api.py", 70)
    inner = [Frame("read", f"{PACKAGES}/zarr/store.py", line) for line in range(300)]
    stacks = [CountedStack(7, "", (frame, called, own, FETCH), 1) for frame in inner]
    (row,) = counted_making(stacks)
    assert (row["repeats"], row["count"]) == ("zarr.open", 300)
