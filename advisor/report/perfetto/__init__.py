"""A run as a trace for ui.perfetto.dev and chrome://tracing: JSON trace events, compressed if the file's name ends with .gz.

Bounded whatever the run's length: older steps share slices, and counters are thinned (the limits are constants of the modules here). The
trace says what is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.gpu.kernel_classes import windows_in
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report.perfetto.counter_tracks import add_counters
from rn50_advisor.advisor.report.perfetto.kernel_tracks import DeepTrace
from rn50_advisor.advisor.report.perfetto.rank_tracks import add_ranks
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook
from rn50_advisor.advisor.report.perfetto.verdict_tracks import VerdictTracks
from rn50_advisor.advisor.verdict.diagnose import of_a_recording

SCHEMA = "rn50-advisor/perfetto/1"
_DEEP_TRACE = re.compile(r"deep-rank\d+\.json\.gz")  # as the agent names them; any other name may lead elsewhere


def trace_of(report: Report, recording: Recording, folder: Path | None = None) -> tuple[TraceBook, dict[str, Any]]:
    """(the run's trace, its metadata). `folder`: the run's own, which has the traces of deep windows. Raises NotARun."""
    with of_a_recording(recording):
        return _trace_of(report, recording, folder)


def _trace_of(report: Report, recording: Recording, folder: Path | None) -> tuple[TraceBook, dict[str, Any]]:
    meta = recording.meta
    book = TraceBook(meta.started_ns, (process.pid for process in recording.processes))
    tracks = VerdictTracks(book, recording, report)
    kernels = _deep_traces(book, report, folder)
    tracks.add_run()
    ranks = add_ranks(book, recording, kernels)
    add_counters(book, recording, report, ranks.pids)
    tracks.add_findings(ranks.starts)
    if recording.meta.processes_left_out:
        book.left_out.append(
            f"{recording.meta.processes_left_out:,} processes that had ended, which the run no longer lists"
        )
    tracks.add_left_out()
    return book, _about(report, recording, book.left_out)


def save_trace(report: Report, recording: Recording, path: Path, folder: Path | None = None) -> None:
    """Writes the run's trace to a file. Raises NotARun and OSError."""
    book, about = trace_of(report, recording, folder)
    book.save(path, about)


def _about(report: Report, recording: Recording, left_out: list[str]) -> dict[str, Any]:
    meta = recording.meta
    began = datetime.fromtimestamp(meta.started_unix_s, timezone.utc).isoformat(timespec="milliseconds")
    return {
        "schema": SCHEMA,
        "made by": f"rn50-advisor {meta.advisor_version}".strip(),
        "run": meta.name,
        "command": list(meta.argv),
        "host": meta.host,
        "clock": "0 is the start of the job; monotonic",
        "started": began,
        "verdict": {"state": report.verdict.state, "rule": report.verdict.rule, "title": report.verdict.title},
        "ranks": report.job.ranks,
        "steps": report.step_time.steps,
        "left out": left_out,
        "not measured": [f"{gap.metric} ({gap.scope}): {gap.reason}" for gap in report.gaps],
    }


def _deep_traces(book: TraceBook, report: Report, folder: Path | None) -> Mapping[int, DeepTrace]:
    """The deep window of each rank, from the files beside the run."""
    from rn50_advisor.advisor.analysis.kernels.chrome_trace import sorted_trace  # noqa: PLC0415 - few runs have one
    from rn50_advisor.advisor.traces.trace_json import read_trace_file  # noqa: PLC0415

    found: dict[int, DeepTrace] = {}
    for window in windows_in(report.facts):
        path = folder / window.trace if folder is not None and _DEEP_TRACE.fullmatch(window.trace) else None
        if report.job.traced:
            book.left_out.append(f"rank {window.rank}: kernels, which are in the profiler's own trace")
        elif path is None or not path.is_file() or path.is_symlink():
            book.left_out.append(
                f"rank {window.rank}: the kernels of its deep window, whose trace is only in the run's folder"
            )
        else:
            try:
                file = read_trace_file(path)
            except NotARun as error:
                book.left_out.append(f"rank {window.rank}: the kernels of its deep window: {error.message}")
                continue
            found[window.rank] = DeepTrace(sorted_trace(file.spans, file.devices), window.first_step)
    return found
