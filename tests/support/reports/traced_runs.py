"""Traces of runs as Perfetto gets them, read back from their JSON. Not a test."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from recordings import FIRST_STEP_NS, MS, batches, plan, rank_process, recording, series, spans, stall, stall_end, table
from rn50_advisor.advisor.model.metrics import SAMPLES
from rn50_advisor.advisor.model.recording import Process, Recording
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report.perfetto import trace_of
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS

Event = dict[str, Any]
STEPS = 30


def written(book: TraceBook, about: Mapping[str, Any] | None = None) -> bytes:
    out = io.BytesIO()
    book.write(out, about or {})
    return out.getvalue()


def events(book: TraceBook) -> list[Event]:
    found: list[Event] = json.loads(written(book))["traceEvents"]
    return found


def trace(made: Recording, report: Report | None = None, folder: Path | None = None) -> bytes:
    return written(*trace_of(report or diagnose(made), made, folder))


def traced(made: Recording, report: Report | None = None, folder: Path | None = None) -> list[Event]:
    """The events of a run's trace, each with the names of its process and thread."""
    return named(json.loads(trace(made, report, folder))["traceEvents"])


def named(found: Sequence[Event]) -> list[Event]:
    names = {
        (event["name"], event["pid"], event.get("tid") if event["name"] == "thread_name" else None): event["args"][
            "name"
        ]
        for event in found
        if event["ph"] == "M" and "name" in event["args"]
    }
    return [
        {
            **event,
            "process": names.get(("process_name", event["pid"], None)),
            "thread": names.get(("thread_name", event["pid"], event.get("tid"))),
        }
        for event in found
        if event["ph"] != "M"
    ]


def of(found: Sequence[Event], category: str) -> list[Event]:
    return [event for event in found if event.get("cat") == category]


def two_busy_ranks() -> Recording:
    """Two ranks with workers, collectives of their own, an evaluation, a stall, and samples of host, process and GPU."""
    steps = plan(STEPS, gap=5)
    steps[9] = {**steps[9], "evaluation": 400.0}
    worker = Process(201, "worker", 0, None, 0, 100, "python train.py", FIRST_STEP_NS)
    called = {
        "calls": 2,
        "bytes": 4096,
        "call_ns": 6 * MS,
        "forward_ns": 4 * MS,
        "optimizer_ns": 2 * MS,
        "group_size": 2,
    }
    rows = table((*COLLECTIVES_FIELDS, "flags"), [{"step": n, **called} for n in range(STEPS)])
    made = batches({"start": 0.1 * n, "wall": 90, "cpu": 80, "number": n, "pid": 201, "worker": 0} for n in range(20))
    sampled = {
        ("cpu.busy_s", "host"): series((0, 0), (1, 2), (2, 3)),
        ("mem.available_bytes", "host"): series((0, 8 << 30), (1, 4 << 30)),
        ("disk.read_bytes", "disk:nvme0n1"): series((0, 0), (1, 5e6), (2, 5e6)),
        ("proc.cpu_s", "pid:100"): series((0, 0), (1, 1), (2, 1.5)),
        ("proc.rss_bytes", "pid:201"): series((0, 1 << 30)),
        ("gpu.util_pct", "gpu:0"): series((0, 90), (1, 30)),
        ("gpu.temp_c", "gpu:0"): series((0, 60)),
        ("gpu.xids", "gpu:0"): series((0, 3), (1, 3), (2, 4)),
        ("gpu.ecc_corrected", "gpu:0"): series((0, 7), (1, 7)),
    }
    assert all(name in SAMPLES for name, _ in sampled)
    one = recording(
        {0: steps, 1: steps},
        wire_ms=3,
        processes=(rank_process(0), rank_process(1), worker),
        batches={0: made},
        spans={0: spans([("evaluation", 9, 1.1, 1.4), ("gc", 3, 0.35, 0.36)])},
        collectives={0: rows},
        samples=sampled,
        events=(stall(20, {"rank": 0, "pid": 100}, {"rank": 1, "pid": 101}), stall_end()),
    )
    # the stall began 10 s after the first step
    return replace(
        one, meta=replace(one.meta, last_ns=FIRST_STEP_NS + 70_000 * MS, ended_ns=FIRST_STEP_NS + 70_000 * MS)
    )
