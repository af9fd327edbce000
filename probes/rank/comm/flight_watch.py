"""Reads torch's flight recorder: the rank's current collective in a long stall, and every few minutes the durations of collectives if
the user has NCCL time them (`TORCH_NCCL_ENABLE_TIMING=1`).

A thread checks every few seconds whether the ring's header still changes. These checks hold no lock and do not touch torch. The thread
runs only in ranks of a distributed job, whose backend has threads anyway. Nothing is switched on: if the user has the flight recorder
off, there is nothing to read. A dump queries CUDA events, so none is made during a CUDA graph capture.
"""

from __future__ import annotations

import _thread
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from .. import rank_ring_folder
from ..layout import PHASE_BITS, PHASE_CODE, PHASE_MASK
from ..ring import PHASE, STEP
from ..side_files import FLIGHT, TIMES

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.code_places import StackFrame
    from ...documents.collective_documents import FlightDump, StalledPosition, TimedCollectives, TimedRow
    from ..recorder import Recorder

CHECK_EVERY_S = 3.0
LEAVING_S_MAX = 1.0  # a thread that is in a call of torch's longer than this is left behind
STALLED_CHECKS = 4  # checks without progress before a dump, which must exist when the agent reports a stall after 15 s
ENTRIES_MAX = 24  # only the latest entries; older ones are done on all ranks
# Number of checks before each reading of collective times: half a minute, then five minutes. A dump of 2000 entries is 1 MB of text and
# holds the GIL for some 10 ms.
FIRST_TIMES, TIMES_EVERY = 10, 100
TIMES_MAX = 16  # kinds and sizes with the most total time
_TIMING = "TORCH_NCCL_ENABLE_TIMING"
_TRUE_VALUES = ("y", "yes", "1", "t", "true")  # the values that c10d accepts
_ITEM_BYTES = {
    "Double": 8, "Long": 8, "ComplexFloat": 8, "Float": 4, "Int": 4, "Half": 2, "BFloat16": 2, "Short": 2,
}  # fmt: skip
_DUMP_BYTES_MAX = 16 << 20
_FRAMES_MAX = 30
_ENTRY_KEYS = (
    "process_group", "collective_seq_id", "p2p_seq_id", "is_p2p", "op_id", "profiling_name", "input_sizes", "output_sizes", "state",
    "time_created_ns", "duration_ms", "timeout_ms", "retired",
)  # fmt: skip
_LEAVING = frozenset((PHASE_CODE["start"], PHASE_CODE["ended"]))


def _held_lock() -> Any:
    lock = _thread.allocate_lock()
    lock.acquire()
    return lock


class FlightWatch:
    """The watching thread. Call `start` once the process is one of several ranks, and `stop` before interpreter shutdown."""

    def __init__(
        self,
        recorder: Recorder,
        read: Callable[[], list[FlightDump]],
        stack: Callable[[], list[StackFrame]] = list,
        times: Callable[[], TimedCollectives] = lambda: {},
    ) -> None:
        self._recorder = recorder
        self._read = read
        self._stack = stack
        self._times = times
        self._until_times = FIRST_TIMES
        self._leaving: Any = None
        self._gone: Any = _held_lock()
        self._place: tuple[int, ...] = ()
        self._unchanged = 0

    def start(self) -> None:
        self._leaving, self._gone = _held_lock(), _held_lock()
        # not a `threading.Thread`, which would count as the job's
        _thread.start_new_thread(self._run, ())

    def stop(self) -> None:
        """Ends the thread, and waits for its end: interpreter shutdown would unwind it, wherever it is, perhaps in torch's C++."""
        lock, self._leaving = self._leaving, None
        if lock is not None:
            lock.release()
            self._gone.acquire(timeout=LEAVING_S_MAX)

    def forget(self) -> None:
        """Resets after a fork, which does not copy threads."""
        self._leaving = None
        self._unchanged = 0
        self._until_times = FIRST_TIMES

    def _run(self) -> None:
        lock, gone = self._leaving, self._gone
        timed = os.environ.get(_TIMING, "").lower() in _TRUE_VALUES
        try:
            while lock is not None and not lock.acquire(timeout=CHECK_EVERY_S) and self._recorder.active:
                if self.stalled():
                    self.write()
                elif timed and self.times_due():
                    timed = self._write_times()
        except Exception:
            self._recorder.errors += 1  # no exception may escape from this thread
        finally:
            gone.release()

    def stalled(self) -> bool:
        """True at the `STALLED_CHECKS`-th check in a row without progress, so only once per stall."""
        account = self._recorder.account
        if account is None or account.ring is None:
            return False
        words = account.ring.words
        place = words[PHASE], words[STEP]
        self._unchanged = self._unchanged + 1 if place == self._place else 0
        self._place = place
        return self._unchanged == STALLED_CHECKS and place[0] & PHASE_MASK not in _LEAVING

    def write(self) -> None:
        """Writes the rank's position in a stall."""
        position: StalledPosition = {}
        if dumps := self._read():
            position["dumps"] = dumps
        if stack := self._stack():
            position["stack"] = stack
        if position:
            self._put(FLIGHT, {"since_ns": self._place[0] >> PHASE_BITS, **position})

    def _write_times(self) -> bool:
        """Writes collective times. False if the dump is unreadable; that must not end the watch for stalls."""
        try:
            self._put(TIMES, self._times())
        except Exception:
            self._recorder.errors += 1
            return False
        return True

    def times_due(self) -> bool:
        """True if this check also reads collective times."""
        self._until_times -= 1
        if self._until_times > 0:
            return False
        self._until_times = TIMES_EVERY
        return True

    def _put(self, name: str, document: StalledPosition | TimedCollectives) -> None:
        if document:
            rank_ring_folder.put(self._recorder.folder, name % os.getpid(), json.dumps(document))


def training_stack(recorder: Recorder) -> list[StackFrame]:
    """Frames of the training thread, innermost first, for processes that cannot be inspected from outside (containers)."""
    account = recorder.account
    frame = None if account is None else sys._current_frames().get(account.thread)
    found: list[StackFrame] = []
    while frame is not None and len(found) < _FRAMES_MAX:
        code = frame.f_code
        found.append({"function": code.co_name, "file": code.co_filename, "line": frame.f_lineno or 0})
        frame = frame.f_back
    return found


def read_times(torch: Any) -> TimedCollectives:
    """Durations of NCCL's collectives on this GPU, including waits, by group, kind and bytes; empty if none was timed."""
    dump = getattr(getattr(torch._C, "_distributed_c10d", None), "_dump_nccl_trace_json", None)
    if dump is None:
        return {}
    try:
        text = dump(includeCollectives=True, onlyActive=False)
    except (RuntimeError, TypeError):
        return {}
    return summed_times(json.loads(text)) if len(text) <= _DUMP_BYTES_MAX else {}


def summed_times(dump: dict[str, Any]) -> TimedCollectives:
    """Sums the durations of a dump. `ms`: sum over all calls; `least_ms`: the shortest call.

    `span_s`: time from the first queued call to the last. `untimed`: calls of unknown duration, and point-to-point sends and receives.
    """
    known = dump.get("entries") or []
    entries = [e for e in known if isinstance(e.get("duration_ms"), (int, float)) and not e.get("is_p2p")]
    if len(entries) < 2:
        return {}
    rows: dict[tuple[str, str, int], TimedRow] = {}
    for entry in entries:
        group, took = entry.get("process_group"), entry["duration_ms"]
        name = str(group[0] if isinstance(group, (list, tuple)) and group else group)
        key = (name, str(entry.get("profiling_name") or ""), _bytes_of(entry))
        row = rows.setdefault(
            key,
            {"group": name, "name": key[1], "bytes": key[2], "calls": 0, "ms": 0.0, "least_ms": took, "ranks": ""},
        )
        row["calls"] += 1
        row["ms"] += took
        row["least_ms"] = min(row["least_ms"], took)
    created = [entry.get("time_created_ns") or 0 for entry in entries]
    longest = sorted(rows.values(), key=lambda row: -row["ms"])
    config = dump.get("pg_config") or {}
    for row in longest[:TIMES_MAX]:
        row["ranks"] = str((config.get(row["group"]) or {}).get("ranks") or "")
    return {
        "span_s": (max(created) - min(created)) / 1e9,
        "ms": sum(row["ms"] for row in longest),
        "calls": len(entries),
        "untimed": len(known) - len(entries),
        "rows": longest[:TIMES_MAX],
    }


def _bytes_of(entry: dict[str, Any]) -> int:
    """Bytes of a collective's inputs; 0 if their types are unknown. Unlisted types count as one byte."""
    total, kinds = 0, entry.get("input_dtypes") or ()
    for number, size in enumerate(entry.get("input_sizes") or ()):
        if number < len(kinds):
            count = 1
            for part in size:
                count *= part
            total += count * _ITEM_BYTES.get(kinds[number], 1)
    return total


def read_dumps(torch: Any) -> list[FlightDump]:
    """State and latest collectives of every backend that has records, without stacks."""
    module = getattr(torch._C, "_distributed_c10d", None)
    found = []
    for name, arguments in (
        ("_dump_fr_trace_json", {"includeCollectives": True, "onlyActive": False}),
        ("_dump_nccl_trace_json", {"includeCollectives": True, "onlyActive": False}),
    ):
        dump = getattr(module, name, None)
        if dump is None:
            continue
        try:
            text = dump(**arguments)
        except (RuntimeError, TypeError):
            continue  # built without that backend, or a torch version with another signature
        if len(text) <= _DUMP_BYTES_MAX:
            kept = shortened(json.loads(text))
            if kept["entries"] or kept["pg_status"]:
                found.append(kept)
    return found


def shortened(dump: dict[str, Any]) -> FlightDump:
    """The latest entries, reduced to the identity and progress of each collective."""
    entries = dump.get("entries") or []
    return {
        "version": dump.get("version"),
        "library": dump.get("comm_lib_version"),
        "pg_config": dump.get("pg_config") or {},
        "pg_status": dump.get("pg_status") or {},
        "entries": [{key: entry[key] for key in _ENTRY_KEYS if key in entry} for entry in entries[-ENTRIES_MAX:]],
    }
