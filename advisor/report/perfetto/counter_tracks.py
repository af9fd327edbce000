"""The run's samples as counters: of each host, each GPU, and each process of the job, with titles and units for people.

A level is shown as it was read, a counter as its increase per second between two readings; of errors and other rare events, as their number
since the recording began.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rn50_advisor.advisor.model.metrics import SAMPLES, Metric
from rn50_advisor.advisor.model.recording import Process, Recording, Series
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.quantities import metric_words
from rn50_advisor.advisor.model.wording.sample_titles import SAMPLE_TITLES
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook, text

READINGS_MAX = 200_000
_COMMAND = 30  # characters
_KIND_WORDS = {"cpu": "core", "net": "network"}
_GIB, _MB = float(1 << 30), 1e6
_EVENTS = {
    "errors",
    "kills",
    "rows",
    "events",
    "reports",
    "files",
}  # units of counters whose number matters, not the rate
# Counters in seconds whose rate is a mean number of something; of all others it is a share of the time.
_RATE_UNITS = {
    **dict.fromkeys(("cpu.busy_s", "cpu.idle_s", "cpu.iowait_s", "cpu.steal_s", "job.cpu_s", "proc.cpu_s"), "cores"),
    **dict.fromkeys(("proc.run_delay_s", "proc.threads_delay_s"), "threads"),
    **dict.fromkeys(("disk.read_wait_s", "mount.read_wait_s"), "reads in flight"),
    "disk.queue_s": "requests in flight",
}


@dataclass(frozen=True, slots=True)
class Shown:
    """How a metric is shown: `title unit`, and its values times `factor`."""

    title: str
    unit: str
    factor: float
    kind: str  # level, rate, or count since the beginning


# By kind and unit of the metric; any other level is shown in its own unit, any other counter as `unit/s`.
_BY_UNIT: Mapping[tuple[str, str], tuple[str, float, str]] = {
    ("level", "bytes"): ("GiB", 1.0 / _GIB, "level"),
    ("level", "bytes/s"): ("MB/s", 1.0 / _MB, "level"),
    ("counter", "bytes"): ("MB/s", 1.0 / _MB, "rate"),
    ("counter", "J"): ("W", 1.0, "rate"),
    ("counter", "s"): ("% of the time", 100.0, "rate"),
    **{("counter", unit): (unit, 1.0, "count") for unit in _EVENTS},
}


def shown_as(metric: Metric) -> Shown:
    title = SAMPLE_TITLES.get(metric.name) or metric_words(metric.name)
    if metric.name in _RATE_UNITS:
        return Shown(title, _RATE_UNITS[metric.name], 1.0, "rate")
    own = (metric.unit, 1.0, "level") if metric.kind == "level" else (f"{metric.unit}/s", 1.0, "rate")
    return Shown(title, *_BY_UNIT.get((metric.kind, metric.unit), own))


def points(series: Series, shown: Shown, every: int = 1) -> Iterator[tuple[int, float]]:
    """Times and values; of `every` readings one. A rate holds from its first reading to its second, and a reset counter has none."""
    chosen = np.arange(0, series.t_ns.size, every)
    t_ns, value = series.t_ns[chosen], series.value[chosen]
    if shown.kind == "level":
        yield from zip(t_ns.tolist(), (value * shown.factor).tolist(), strict=True)
    elif shown.kind == "count" and value.size:
        grown = np.concatenate([[0.0], np.cumsum(np.maximum(np.diff(value), 0.0))])
        yield from zip(t_ns.tolist(), grown.tolist(), strict=True)
    elif t_ns.size > 1:
        seconds, grown = np.diff(t_ns) / 1e9, np.diff(value)
        known = (seconds > 0) & (grown >= 0)
        rates = grown[known] / seconds[known] * shown.factor
        yield from zip(t_ns[:-1][known].tolist(), rates.tolist(), strict=True)


def add_counters(book: TraceBook, recording: Recording, report: Report, rank_pids: Mapping[int, int]) -> None:
    """Adds a process for each host and GPU. Counters of a process go to its rank, or, if it has none, to its host."""
    nodes: Sequence[tuple[str, Mapping[tuple[str, str], Series]]] = [
        (node.host, node.recording.samples) for node in recording.nodes
    ] or [(recording.meta.host, recording.samples)]
    readings = sum(series.t_ns.size for _, samples in nodes for series in samples.values())
    every = max(1, -(-readings // READINGS_MAX))
    if every > 1:
        book.left_out.append(
            f"counters have every {every}th of {readings:,} readings: rates are means over this time, levels may lack peaks"
        )
    gpus = {strip.index: strip for strip in report.gpus}
    processes = {process.pid: process for process in recording.processes}
    for host, samples in nodes:
        known = [(SAMPLES[name], scope, series) for (name, scope), series in samples.items() if name in SAMPLES]
        if not known:
            continue
        ordered = sorted(known, key=lambda one: (_place(one[1]), _ORDER.get(one[0].name, len(_ORDER))))
        pids: dict[str, int] = {}
        idle: dict[str, None] = {}
        for metric, scope, series in ordered:
            shown = shown_as(metric)
            if not _moves(metric, series):
                idle[shown.title] = None
                continue
            kind, _, name = scope.partition(":")
            place, words = _where(kind, name, processes, rank_pids)
            if isinstance(place, int):
                pid = place
            else:
                pid = pids.get(place) or book.process(_process_name(place, host, gpus))
                pids[place] = pid
            book.counter(pid, f"{words}{shown.title}", shown.unit, points(series, shown, every))
        if idle:
            where = f" on {host}" if recording.nodes else ""
            book.left_out.append(f"counters that stayed as they were at the beginning{where}: {', '.join(idle)}")


def _moves(metric: Metric, series: Series) -> bool:
    """False for a counter that never grew, and for a flag that was never set: a GPU has thirty of them."""
    if metric.kind == "counter":
        return bool(series.value.size and (series.value != series.value[0]).any())
    return bool(metric.unit) or bool(series.value.any())


_ORDER = {name: place for place, name in enumerate(SAMPLES)}
_KINDS = ("host", "job", "cpu", "disk", "mount", "net", "gpu", "mig", "pid")


def _place(scope: str) -> tuple[int, int, str]:
    """Where a scope stands: hosts first, numbers in order."""
    kind, _, name = scope.partition(":")
    number = name.partition("/")[0]
    return (
        _KINDS.index(kind) if kind in _KINDS else len(_KINDS),
        int(number) if number.isdecimal() else 0,
        name,
    )


def _where(
    kind: str, name: str, processes: Mapping[int, Process], rank_pids: Mapping[int, int]
) -> tuple[str | int, str]:
    """(the process of the trace that shows this scope: its number, `host` or `gpu:3`; the words in front of the title)."""
    if kind == "gpu":
        return f"gpu:{name}", ""
    if kind == "mig":
        number, _, instance = name.partition("/")
        return f"gpu:{number}", f"MIG {instance}: "
    if kind == "pid" and name.isdecimal():
        process = processes.get(int(name))
        pid = rank_pids.get(process.rank) if process is not None and process.rank is not None else None
        if process is not None and pid is not None:
            worker = "" if process.role == "rank" else f"worker {process.worker}, process {name}: "
            return pid, worker
        command = f" ({text(process.command, _COMMAND)})" if process is not None and process.command else ""
        return "host", f"process {name}{command}: "
    return "host", "" if kind in ("host", "job") else f"{_KIND_WORDS.get(kind, kind)} {name}: "


def _process_name(place: str, host: str, gpus: Mapping[int, object]) -> str:
    if place == "host":
        return f"host {host}" if host else "host"
    number = place.partition(":")[2]
    strip = gpus.get(int(number)) if number.isdecimal() else None
    name = getattr(strip, "name", "")
    on = getattr(strip, "host", "")
    return " · ".join(part for part in (f"GPU {number}", name, on) if part)
