"""Decodes a file of torch.profiler: plain or compressed JSON, as any version since torch 1.8 wrote it.

Kineto's own writer was not always correct: strings held control characters, bandwidths were `inf` or `nan`, and names broke UTF-8. Such a
file is cleaned and decoded again. Arguments that are rarely needed stay undecoded, so that a large trace fits into memory.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from rn50_advisor.advisor.analysis.kernels.chrome_trace import Span
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.wording.quantities import shorten_path
from rn50_advisor.advisor.traces.trace_content import CUT_OFF, DECODED, Progress, trace_content

_NO_CONTROLS = bytes(32 if code < 32 else code for code in range(256))
_NOT_NUMBERS = re.compile(rb'(":\s*)-?(?:inf|nan|Infinity|NaN|Inf)\b')
_TIME_MAX_US = 1e16  # the year 2286
_Number = int | float | str | None
_ABSENT = msgspec.Raw()


class _Arguments(msgspec.Struct, gc=False):
    """The arguments of an event that are used. Those that are lists stay JSON."""

    external: _Number = msgspec.field(default=None, name="External id")
    old_external: _Number = msgspec.field(default=None, name="external id")
    correlation: _Number = None
    device: _Number = None
    stream: _Number = None
    bytes: _Number = None
    size: _Number = None  # of a copy on ROCm
    dims: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input Dims")
    old_dims: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input dims")
    types: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input type")
    concrete: msgspec.Raw = msgspec.field(default=_ABSENT, name="Concrete Inputs")
    strides: msgspec.Raw = msgspec.field(default=_ABSENT, name="Input Strides")
    stack: _Number = msgspec.field(default=None, name="Call stack")
    called_from: _Number = msgspec.field(default=None, name="CallFrom")
    collective: _Number = msgspec.field(default=None, name="Collective name")
    elements: _Number = msgspec.field(default=None, name="In msg nelems")
    element_type: _Number = msgspec.field(default=None, name="dtype")
    group: _Number = msgspec.field(default=None, name="Process Group Name")
    group_size: _Number = msgspec.field(default=None, name="Group size")
    sequence: _Number = msgspec.field(default=None, name="Seq")


class _Event(msgspec.Struct, gc=False):
    ph: str = ""
    cat: str | None = ""
    name: _Number = ""
    pid: _Number = None
    tid: _Number = None
    ts: _Number = None
    dur: _Number = 0
    args: _Arguments | None = None


class _LooseEvent(msgspec.Struct, gc=False):
    """An event of a foreign trace, whose arguments have other types."""

    ph: Any = ""
    cat: Any = ""
    name: Any = ""
    pid: Any = None
    tid: Any = None
    ts: Any = None
    dur: Any = 0
    args: msgspec.Raw = _ABSENT


class _Document(msgspec.Struct):
    events: list[_Event] = msgspec.field(name="traceEvents")
    devices: Any = msgspec.field(default=None, name="deviceProperties")
    distributed: Any = msgspec.field(default=None, name="distributedInfo")
    base_ns: Any = msgspec.field(default=0, name="baseTimeNanoseconds")
    host: Any = msgspec.field(default="", name="host_name")
    with_stack: Any = None
    record_shapes: Any = None


class _LooseDocument(_Document):
    events: list[_LooseEvent] = msgspec.field(name="traceEvents")  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class TraceFile:
    """One decoded file: pairs of category and event, and what its header says."""

    path: Path
    spans: list[tuple[str, Span]]
    devices: Any = None
    distributed: Mapping[str, Any] = field(default_factory=dict)
    base_ns: int = 0
    host: str = ""


class _LazyArguments(dict[str, Any]):
    """Arguments of which some are JSON until they are asked for."""

    def __getitem__(self, key: str) -> Any:
        value = dict.__getitem__(self, key)
        if isinstance(value, msgspec.Raw):
            value = msgspec.json.decode(value)
            dict.__setitem__(self, key, value)
        return value

    def get(self, key: str, default: Any = None) -> Any:
        try:
            return self[key]
        except KeyError:
            return default


_NONE: Mapping[str, Any] = {}


def read_trace_file(path: Path, progress: Progress = lambda share: None) -> TraceFile:
    """Decodes a trace. Raises NotARun, whose message is one line, if it is truncated or no trace."""
    shown = shorten_path(str(path), 120)
    try:
        data = trace_content(path, progress, shown)
    except OSError as error:
        raise NotARun(f"{shown} cannot be read: {error.strerror or error}") from error
    document = _decoded(data, shown)
    spans = list(_spans(document.events))
    progress(DECODED)
    if not spans:
        raise NotARun(f"{shown} is no trace of torch.profiler: it has no event with a duration")
    distributed = document.distributed
    base = document.base_ns
    return TraceFile(
        path,
        spans,
        document.devices,
        distributed if isinstance(distributed, Mapping) else {},
        base if isinstance(base, int) else 0,
        document.host if isinstance(document.host, str) else "",
    )


def _decoded(data: bytes, shown: str) -> _Document:
    """The document; it is cleaned if its writer broke JSON. Raises NotARun."""
    try:
        return _strictly_or_loosely(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if "truncated" in str(error):
            raise NotARun(f"{shown} is cut off after {len(data):,} bytes: its JSON ends early", CUT_OFF) from error
    try:
        return _strictly_or_loosely(_cleaned(data))
    except msgspec.ValidationError as error:
        raise NotARun(f"{shown} is no trace of torch.profiler: {error}") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if "truncated" in str(error):
            raise NotARun(f"{shown} is cut off after {len(data):,} bytes: its JSON ends early", CUT_OFF) from error
        raise NotARun(f"{shown} is no valid JSON: {error}") from error


def _strictly_or_loosely(data: bytes) -> _Document:
    """Decodes events of the usual types fast, and those of a foreign writer slowly. Raises msgspec.DecodeError."""
    try:
        return _as_document(data)
    except msgspec.ValidationError:
        found = _as_document(data, _LooseDocument, _LooseEvent)
    found.events = [_strict(event) for event in found.events]  # type: ignore[arg-type]
    return found


def _as_document(data: bytes, kind: type[_Document] = _Document, event: type = _Event) -> _Document:
    if data.lstrip()[:1] == b"[":
        events = msgspec.json.decode(data, type=list[event])  # type: ignore[valid-type]
        return _Document(events)
    return msgspec.json.decode(data, type=kind)


def _strict(loose: _LooseEvent) -> _Event:
    """The event without what is of another type."""
    name, pid, tid, start, took = (
        value if isinstance(value, (int, float, str)) else None
        for value in (loose.name, loose.pid, loose.tid, loose.ts, loose.dur)
    )
    try:
        args = msgspec.json.decode(loose.args, type=_Arguments) if loose.args else None
    except msgspec.DecodeError:
        args = None
    kind, phase = (value if isinstance(value, str) else "" for value in (loose.cat, loose.ph))
    return _Event(phase, kind, name, pid, tid, start, took, args)


def _cleaned(data: bytes) -> bytes:
    """The same JSON with control characters blanked, numbers that JSON lacks as null, and valid UTF-8."""
    data = _NOT_NUMBERS.sub(rb"\1null", data.translate(_NO_CONTROLS))
    try:
        data.decode()
    except UnicodeDecodeError:
        return data.decode("utf-8", "replace").encode()
    return data


def _spans(events: list[_Event]) -> Iterator[tuple[str, Span]]:
    """Pairs of category and complete event."""
    names: dict[str, str] = {}  # one string for all events of a name
    threads: dict[tuple[_Number, _Number], str] = {}
    for event in events:
        if event.ph != "X" or event.cat is None:
            continue
        try:
            start, took = float(event.ts), float(event.dur or 0.0)  # type: ignore[arg-type]
        except (TypeError, ValueError):
            continue
        if not (abs(start) < _TIME_MAX_US and abs(took) < _TIME_MAX_US):  # nor if it is not a number
            continue
        name = str(event.name)
        place = event.pid, event.tid
        thread = threads.get(place)
        if thread is None:
            thread = threads[place] = f"{event.pid}/{event.tid}"
        external, correlation, args = _arguments(event.args)
        span = Span(names.setdefault(name, name), start, start + max(took, 0.0), thread, external, correlation, args)
        yield names.setdefault(event.cat, event.cat), span


def _arguments(args: _Arguments | None) -> tuple[int, int, Mapping[str, Any]]:
    """(external id, correlation, the other arguments by their newest names)."""
    if args is None:
        return 0, 0, _NONE
    external = _whole(args.external if args.external is not None else args.old_external)
    found = _LazyArguments()
    if args.device is not None:
        found["device"] = args.device
        if args.stream is not None:
            found["stream"] = args.stream
        if args.bytes is not None:
            found["bytes"] = args.bytes
        if args.collective is not None:
            found["Collective name"], found["In msg nelems"] = args.collective, args.elements
            found["dtype"], found["Process Group Name"] = args.element_type, args.group
            found["Group size"], found["Seq"] = args.group_size, args.sequence
    if dims := args.dims or args.old_dims:
        found["Input Dims"] = dims
        for name, value in (
            ("Input type", args.types),
            ("Concrete Inputs", args.concrete),
            ("Input Strides", args.strides),
        ):
            if value:
                found[name] = value
    if args.stack is not None:
        found["Call stack"] = args.stack
    if args.called_from is not None:
        found["CallFrom"] = args.called_from
    if "bytes" not in found and args.size is not None:
        found["bytes"] = args.size
    size = found.get("bytes")
    if isinstance(size, str):
        found["bytes"] = _whole(size)
    return external, _whole(args.correlation), found or _NONE


def _whole(value: _Number) -> int:
    try:
        return int(value or 0)
    except ValueError:
        return 0
