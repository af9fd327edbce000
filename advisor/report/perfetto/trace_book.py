"""A trace in Chrome's JSON trace-event format, which Perfetto's trace processor, ui.perfetto.dev and chrome://tracing read.

Times come in as nanoseconds of the run's clock and go out as microseconds since the job's start. Slices of one thread must follow each
other or lie inside each other: Perfetto drops those that overlap in part. Text from the job is masked and made printable in one place here.
"""

from __future__ import annotations

import functools
import gzip
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from rn50_advisor.advisor.report.inert_text import one_line
from rn50_advisor.advisor.store.secrets.masking import redact_argv, redact_text

_FIRST_FREE = 1
_DEPTH_MAX = 3  # of lists in arguments
_LONGEST = 2000  # characters of an argument: a fix is longer than a name
_CHUNK_EVENTS = 4096


@dataclass(frozen=True, slots=True)
class Track:
    """A thread of the trace."""

    pid: int
    tid: int


class TraceBook:
    """Collects events. `left_out` says in words what the trace does not hold; it goes into the trace's metadata."""

    def __init__(self, origin_ns: int, taken: Iterable[int] = ()) -> None:
        self._origin_ns = origin_ns
        self._events: list[bytes] = []
        self._numbers = set(taken)  # process ids of the job, which no made-up process may have
        self._threads: set[int] = set()
        self._order = 0
        self.left_out: list[str] = []

    def __len__(self) -> int:
        return len(self._events)

    def process(self, name: str, pid: int | None = None) -> int:
        """Adds a process below the earlier ones. Without `pid` it gets a number that no process of the job has."""
        pid = self._free() if pid is None else pid
        self._order += 1
        self._name("process_name", pid, pid, {"name": text(name)})
        self._name("process_sort_index", pid, pid, {"sort_index": self._order})
        return pid

    def thread(self, pid: int, name: str, tid: int | None = None) -> Track:
        """Adds a thread below the earlier ones of its process. A number that another thread has is replaced."""
        tid = self._free() if tid is None or tid in self._threads else tid
        self._threads.add(tid)
        self._order += 1
        self._name("thread_name", pid, tid, {"name": text(name)})
        self._name("thread_sort_index", pid, tid, {"sort_index": self._order})
        return Track(pid, tid)

    def slice(
        self, track: Track, name: str, span_ns: tuple[int, int], category: str, args: Mapping[str, Any] | None = None
    ) -> None:
        start, end = (max(0, int(t) - self._origin_ns) for t in span_ns)
        times = {"ts": microseconds(start), "dur": microseconds(max(0, end - start))}
        self._add({"ph": "X", "cat": category, "name": text(name), **_place(track), **times, **_given(args)})

    def instant(self, track: Track, name: str, t_ns: int, category: str, args: Mapping[str, Any] | None = None) -> None:
        at = microseconds(max(0, int(t_ns) - self._origin_ns))
        self._add({"ph": "i", "s": "t", "cat": category, "name": text(name), **_place(track), "ts": at, **_given(args)})

    def counter(self, pid: int, name: str, unit: str, points: Iterable[tuple[int, float]]) -> None:
        """Adds a counter track of a process, `name (unit)`. A value holds until the next; equal neighbours are written once.

        Perfetto appends the argument's name to the counter's.
        """
        before: float | None = None
        series = "(number)" if not unit or f" {unit} " in f" {name} " else f"({unit})"
        for t_ns, exact in points:
            value = _rounded(exact)
            if value != before and math.isfinite(value):
                at = microseconds(max(0, int(t_ns) - self._origin_ns))
                self._add({"ph": "C", "name": text(name), "pid": pid, "ts": at, "args": {series: value}})
                before = value

    def write(self, out: BinaryIO, about: Mapping[str, Any]) -> None:
        """Writes the trace as JSON, with `about` as its metadata. Raises OSError."""
        out.write(b'{"displayTimeUnit":"ms","otherData":' + msgspec.json.encode(plain(about)) + b',"traceEvents":[\n')
        for first in range(0, len(self._events), _CHUNK_EVENTS):
            out.write((b",\n" if first else b"") + b",\n".join(self._events[first : first + _CHUNK_EVENTS]))
        out.write(b"\n]}\n")

    def save(self, path: Path, about: Mapping[str, Any]) -> None:
        """Writes the trace to a file, compressed if its name ends with .gz. Raises OSError."""
        with ExitStack() as files:
            out: BinaryIO = files.enter_context(path.open("wb"))
            if path.name.lower().endswith(".gz"):
                packed = gzip.GzipFile(filename="", mode="wb", fileobj=out, mtime=0, compresslevel=6)
                out = files.enter_context(packed)  # type: ignore[assignment]
            self.write(out, about)

    def _free(self) -> int:
        number = next(n for n in range(_FIRST_FREE, 1 << 31) if n not in self._numbers and n not in self._threads)
        self._numbers.add(number)
        return number

    def _name(self, kind: str, pid: int, tid: int, args: Mapping[str, Any]) -> None:
        self._add({"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": args})

    def _add(self, event: Mapping[str, Any]) -> None:
        self._events.append(msgspec.json.encode(event))


def microseconds(ns: int) -> float | int:
    """The number whose product with 1000 is `ns` whether it is rounded or cut off: newer versions of Perfetto round it, older ones do not.

    After plain division, some would read times that are 1 ns less, and a slice would begin before the one that holds it.
    """
    if ns % 1000 == 0:
        return ns // 1000
    us = ns / 1000
    return us if int(us * 1000) == ns else math.nextafter(us, math.inf)


@functools.lru_cache(16_384)
def text(words: str, limit: int = 300) -> str:
    """Printable text on one line, without what looks like a secret."""
    return one_line(redact_text(words), limit)


def plain(value: Any, depth: int = 0) -> Any:
    """A value for the arguments of an event: numbers, texts, and short lists of them; anything else as text."""
    value = value.item() if hasattr(value, "item") else value  # a numpy scalar
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, float):
        return _rounded(value) if math.isfinite(value) else None
    if depth < _DEPTH_MAX and isinstance(value, Mapping):
        return {text(str(key)): plain(item, depth + 1) for key, item in value.items()}
    if depth < _DEPTH_MAX and isinstance(value, Sequence) and not isinstance(value, str):
        together = redact_argv(value) if all(isinstance(item, str) for item in value) else value
        return [plain(item, depth + 1) for item in together]
    return text(str(value), _LONGEST)


def lanes(spans_ns: Sequence[tuple[int, int]]) -> list[int]:
    """The lane of each slice, so that those of one lane follow each other. `spans_ns`: starts and ends, in order of start."""
    ends: list[int] = []
    chosen = []
    for start, end in spans_ns:
        lane = next((number for number, last in enumerate(ends) if last <= start), len(ends))
        ends[lane : lane + 1] = [max(start, end)]
        chosen.append(lane)
    return chosen


def inside_each_other(spans_ns: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The slices of one thread, shortened where one ends after the slice that it begins in. In order of start, the longer one first."""
    open_ends: list[int] = []
    for start, end in spans_ns:
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        until = min(end, open_ends[-1]) if open_ends else end
        open_ends.append(until)
        yield start, until


def _rounded(value: float) -> float | int:
    """Six significant digits: more are noise, and take a third of the file."""
    short = float(f"{value:.6g}") if math.isfinite(value) else value
    return int(short) if math.isfinite(short) and short.is_integer() and abs(short) < 1e15 else short


def _place(track: Track) -> dict[str, int]:
    return {"pid": track.pid, "tid": track.tid}


def _given(args: Mapping[str, Any] | None) -> dict[str, Any]:
    """Arguments without unknown ones."""
    known = {name: plain(value) for name, value in (args or {}).items() if value is not None and value != ""}
    return {"args": known} if known else {}
