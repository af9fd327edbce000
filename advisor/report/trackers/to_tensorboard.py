"""Writes a run as a TensorBoard run of its own: one event file, and the HTML page beside it.

TensorBoard's own messages and its record format, without its writer: that one loads TensorFlow where it is installed.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.report.trackers.parcel import Parcel

_PARENT = "rn50-advisor"
_SUFFIX = ".rn50-advisor"  # of our event files: only these are replaced
_KEPT = 2  # earlier ones: an open viewer that reads a file which is gone never gets to the next
PAGE, TEXT = "report.html", "verdict_and_findings"


def send(place: str, parcel: Parcel) -> str:
    """Writes `place`/rn50-advisor/<run>, replacing what an earlier call wrote there. Raises AdvisorError."""
    run = re.sub(r"[^\w.-]+", "-", parcel.name).strip(".-")[:80] or "run"
    folder = Path(place).expanduser() / _PARENT / f"{run}-{parcel.key[:8]}"
    try:
        _write(folder, parcel)
    except OSError as error:
        raise AdvisorError(f"cannot write {folder}: {error.strerror or error}") from error
    return f"{folder}: tensorboard --logdir {place}"


def _write(folder: Path, parcel: Parcel) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / PAGE).write_text(parcel.page, encoding="utf-8", errors="replace")
    before = sorted(path for path in folder.glob(f"events.out.tfevents.*{_SUFFIX}") if path.is_file())
    # TensorBoard reads the files of a run in the order of their names; the later one supersedes the steps of the earlier
    began_s = max([int(parcel.points[-1].unix_s) if parcel.points else 0, *(_began_s(path) + 1 for path in before)])
    final = folder / f"events.out.tfevents.{began_s:010d}.{_host()}{_SUFFIX}"
    partial = folder / f".{final.name}.{os.getpid()}.new"
    try:
        with partial.open("wb") as file:
            records = import_module("tensorboard.summary.writer.record_writer").RecordWriter(file)
            for event in _events(parcel):
                records.write(event.SerializeToString())
        partial.replace(final)
    finally:
        partial.unlink(missing_ok=True)
    for path in before[:-_KEPT]:
        path.unlink(missing_ok=True)


def _began_s(path: Path) -> int:
    found = re.match(r"events\.out\.tfevents\.(\d{1,18})\.", path.name)
    return int(found[1]) if found else 0


def _host() -> str:
    return re.sub(r"[^\w-]+", "-", socket.gethostname())[:60] or "host"


def _events(parcel: Parcel) -> Iterator[Any]:
    event_pb2 = import_module("tensorboard.compat.proto.event_pb2")
    summary_pb2 = import_module("tensorboard.compat.proto.summary_pb2")
    first_s = parcel.points[0].unix_s if parcel.points else 0.0
    last_s = parcel.points[-1].unix_s if parcel.points else 0.0
    yield event_pb2.Event(wall_time=first_s, file_version="brain.Event:2")
    # a viewer that has read an earlier file drops the points from this step on
    start = event_pb2.SessionLog(status=event_pb2.SessionLog.START)
    yield event_pb2.Event(wall_time=first_s, step=0, session_log=start)
    for point in parcel.points:
        values = [summary_pb2.Summary.Value(tag=name, simple_value=value) for name, value in point.values.items()]
        yield event_pb2.Event(wall_time=point.unix_s, step=point.step, summary=summary_pb2.Summary(value=values))
    yield event_pb2.Event(
        wall_time=last_s,
        step=max(parcel.last_step, 0),
        summary=summary_pb2.Summary(value=[_text(TEXT, parcel.summary)]),
    )


def _text(tag: str, words: str) -> Any:
    summary_pb2 = import_module("tensorboard.compat.proto.summary_pb2")
    tensor_pb2 = import_module("tensorboard.compat.proto.tensor_pb2")
    types_pb2 = import_module("tensorboard.compat.proto.types_pb2")
    plugin = summary_pb2.SummaryMetadata.PluginData(plugin_name="text")
    return summary_pb2.Summary.Value(
        tag=tag,
        metadata=summary_pb2.SummaryMetadata(plugin_data=plugin),
        tensor=tensor_pb2.TensorProto(dtype=types_pb2.DT_STRING, string_val=[words.encode("utf-8", "replace")]),
    )
