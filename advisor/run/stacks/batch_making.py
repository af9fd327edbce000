"""Samples stacks of processes that make batches, to find the user's slow line if the transforms' times do not show it."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, happened
from rn50_advisor.advisor.run.rings.ring_follower import Follower
from rn50_advisor.advisor.run.stacks.collection_calls import collection_call
from rn50_advisor.advisor.run.stacks.repeated_calls import repeated_call
from rn50_advisor.advisor.run.stacks.source_lines import source_line
from rn50_advisor.advisor.run.stacks.stack_budget import StackBudget
from rn50_advisor.advisor.run.stacks.whole_reads import whole_read
from rn50_advisor.probes.documents.code_places import UserLine
from rn50_advisor.probes.documents.event_documents import CountedMaking, SampleMaking
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack, is_user_file, user_frame
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack

_FETCHER = "/torch/utils/data/_utils/fetch.py"
_DEFAULT_COLLATE = "default_collate"
_CALLERS_MAX = 8
_ADJACENT = 2  # frames of a library next to the user's line: a mapping's `get` and what it calls
_REFUSALS_MAX = 3
# Frames that wait for another process: for a lock that it holds, or for the one process that serves all. A lock of threads is
# none of these: each worker has its own.
_LOCK_FILES = re.compile(r"/multiprocessing/synchronize\.py$|/(filelock|portalocker|fasteners)/")
_SERVER_FILES = re.compile(r"/multiprocessing/managers\.py$")
_LOCK_CALLS = re.compile(r"\b(acquire|flock|lockf)\(")  # calls into C, which leave no frame of their own
# Frames that request a sample from a server, remote or local. Database drivers mostly leave no frame of their own.
_CLIENT_FILES = re.compile(
    r"/python3[^/]*/(socket|ssl|http/client|urllib/request)\.py$|/(urllib3|requests|httpx|httpcore|aiohttp|botocore|boto3|s3fs|gcsfs|minio"
    r"|redis|pymongo|pymysql|psycopg2?|grpc|google/cloud|azure|sqlite3|asyncpg|pymemcache|elasticsearch|elastic_transport)/"
)
_REQUEST_CALLS = re.compile(r"\b(execute|executemany|fetchone|fetchall|fetchmany|urlopen|recv|hget|mget|get_object)\(")

_COLLECTOR_CALLS = re.compile(r"\bgc\.collect\(")
_TABLE_FILES = re.compile(r"/(?:site|dist)-packages/(pandas|polars)/")
_TABLE_READERS = re.compile(r"/(?:site|dist)-packages/(pandas|polars)/io/")
_SLICE = re.compile(r"\[[^][]*:[^][]*\]")
_CHUNKED_FILES = re.compile(r"/(?:site|dist)-packages/(h5py|zarr)/")

Dump = Callable[[int], tuple[tuple[ThreadStack, ...] | ProbeGap, float]]


@dataclass(frozen=True, slots=True)
class Maker:
    """A worker, or a rank that loads by itself. `thread`: the kernel's id of the thread that makes batches, where it is known."""

    rank: int
    pid: int
    thread: int | None = None


def makers_of(followers: Iterable[Follower], facts: Mapping[int, RankFacts]) -> tuple[Maker, ...]:
    """`facts`: each process's own facts, by pid."""
    return tuple(Maker(f.rank or 0, f.pid, facts.get(f.pid, {}).get("main_thread")) for f in followers)


class BatchMakingSampler:
    """`dump` returns the stacks and the CPU seconds that they took."""

    def __init__(self, budget: StackBudget, *, dump: Dump, post: Callable[[AnyEvent | ProbeGap], None]) -> None:
        self._budget = budget
        self._dump = dump
        self._post = post
        self._refusals = 0
        self._turn = 0

    def look(self, makers: Sequence[Maker]) -> None:
        """Dumps the stack of at most one worker; workers of a rank take turns."""
        if self._refusals >= _REFUSALS_MAX:
            return
        due = [maker for maker in makers if self._budget.allows(maker.rank, time.monotonic())]
        if not due:
            return
        self._turn += 1
        maker = due[self._turn % len(due)]
        stacks, cpu_s = self._dump(maker.pid)
        found = None if isinstance(stacks, ProbeGap) else line_in_making(stacks, maker.thread)
        self._budget.spent(maker.rank, time.monotonic(), cpu_s, hit=found is not None)
        # a worker that has ended meanwhile is no refusal
        self._refusals = self._refusals + 1 if isinstance(stacks, ProbeGap) and "permitted" in stacks.reason else 0
        if isinstance(stacks, ProbeGap) and self._refusals == _REFUSALS_MAX:
            self._post(stacks)
        if found is not None:
            self._post(happened(SampleMaking, found, t_ns=time.perf_counter_ns(), pid=maker.pid, rank=maker.rank))


def line_in_making(stacks: Sequence[ThreadStack], thread: int | None) -> SampleMaking | None:
    """The innermost user line below the fetcher, and the shared resource it waits for; None if no sample is being made."""
    stack = next((s for s in stacks if (s.thread_id == thread if thread is not None else s.main)), None)
    return _shown(stack.frames) if stack is not None else None


def counted_making(stacks: Iterable[CountedStack]) -> list[CountedMaking]:
    """The same for each stack of one thread's profile, with its number of samples; equal ones are counted together."""
    rows: dict[str, CountedMaking] = {}
    for stack in stacks:
        found = _shown(stack.frames)
        if found is not None:
            row = rows.setdefault(json.dumps(found, sort_keys=True), {**found, "count": 0})
            row["count"] += stack.count
    return sorted(rows.values(), key=lambda row: -row["count"])


def _shown(stack: Sequence[Frame]) -> SampleMaking | None:
    depth = next((n for n, frame in enumerate(stack) if _FETCHER in frame.file), None)
    if depth is None or any(frame.function == _DEFAULT_COLLATE for frame in stack[:depth]):
        return None
    frames = stack[:depth]
    user = user_frame(frames)
    # without a line of the user's the data set is a library's, and so are its transforms
    line: UserLine | None = {"function": user.function, "file": user.file, "line": user.line} if user else None
    found: SampleMaking = {"user": line, "awaits": _awaited(frames, user)}
    if callers := [frame for frame in frames[len(_inside(frames, user)) + 1 :] if is_user_file(frame.file)]:
        found["callers"] = [{"function": f.function, "file": f.file, "line": f.line} for f in callers[:_CALLERS_MAX]]
    if _asks(frames, user):
        found["asks"] = True
    # what a library calls in turn does not matter, and differs between the hundred stacks of a profile
    depth = len(_inside(frames, user))
    if whole := whole_read(tuple(frames[max(0, depth - _ADJACENT) :])):
        found["repeats"], found["whole"] = whole["call"], whole["kind"]
    elif repeats := repeated_call(tuple(frames[max(0, depth - 1) :])):
        found["repeats"] = repeats
    if user is not None and frames[0] is user and _COLLECTOR_CALLS.search(source_line(user.file, user.line)):
        found["collects"] = True
    if table := _table(frames, user):
        found["table"] = table
    if user is not None and (library := _library_of_array(frames, user)):
        found["array"] = library
        if not _SLICE.search(source_line(user.file, user.line)):
            found["chunked"] = library
    inside = _inside(frames, user)
    if user is not None and (call := collection_call(user, inside[-1].function if inside else None)):
        found["collection"] = call
    return found


def _inside(frames: Sequence[Frame], user: Frame | None) -> Sequence[Frame]:
    return frames[: frames.index(user)] if user else frames


def _asks(frames: Sequence[Frame], user: Frame | None) -> bool:
    """True if the stack waits for the answer of a server or a database."""
    inside = _inside(frames, user)
    if user is None or inside:
        return any(_CLIENT_FILES.search(frame.file) for frame in inside)
    return bool(_REQUEST_CALLS.search(source_line(user.file, user.line)))


def _table(frames: Sequence[Frame], user: Frame | None) -> str | None:
    """The library of tables that the user's line calls; None if it reads a file there."""
    inside = _inside(frames, user) if user is not None else ()
    if any(_TABLE_READERS.search(frame.file) for frame in inside):
        return None
    return next((found[1] for frame in inside if (found := _TABLE_FILES.search(frame.file))), None)


def _library_of_array(frames: Sequence[Frame], user: Frame) -> str | None:
    """The library of arrays in chunks that the user's line calls."""
    return next((found[1] for frame in _inside(frames, user) if (found := _CHUNKED_FILES.search(frame.file))), None)


def _awaited(frames: Sequence[Frame], user: Frame | None) -> str | None:
    """`lock` or `server` if it queues for one shared with other processes; None if it is working."""
    inside = _inside(frames, user)
    for word, files in (("server", _SERVER_FILES), ("lock", _LOCK_FILES)):
        if any(files.search(frame.file) for frame in inside):
            return word
    called = user is not None and not inside and _LOCK_CALLS.search(source_line(user.file, user.line))
    return "lock" if called else None
