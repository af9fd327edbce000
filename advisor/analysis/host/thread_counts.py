"""Counts the compute threads of ranks and those that wait for a core, measures which threads of loader workers compute, and finds the lines
that have OpenMP bind them to cores.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import Window, process_by_rank
from rn50_advisor.advisor.analysis.input.loading import made_for
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.measures.host_measures import THREADS_INTRA_OP, THREADS_WAITING
from rn50_advisor.advisor.model.measures.input_measures import LOADER_HELPER_CORES, LOADER_HELPER_SHARE
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.probes.documents.code_places import CodePlace
from rn50_advisor.probes.rank.layout import FLAG_FIRST_BATCH

_SETS_VARIABLE = re.compile(
    r"^[^#]*(?:environ\s*\[|environ\.setdefault\(|putenv\()\s*[\"'](\w+)[\"']\s*(?:\]\s*=[^=]|,)"
)
# Least CPU time of a rank's workers: the kernel counts in hundredths of a second, and the window cuts off batches at both ends.
_WORKER_CPU_MIN_S = 0.5
_BATCHES_MIN = 3  # of a worker


def binding_lines(recording: Recording) -> dict[str, CodePlace]:
    """The first line of the job's own code that sets each variable by which OpenMP binds threads: `os.environ["OMP_PROC_BIND"] = ...`."""
    binding = {name for facts in recording.facts.values() for name in facts.get("binding_variables", ())}
    found: dict[str, CodePlace] = {}
    if binding:
        for source in (source for source in recording.sources if not source.edited):
            for number, line in enumerate(source.text.splitlines(), 1):
                if (match := _SETS_VARIABLE.search(line)) and match[1] in binding:
                    found.setdefault(match[1], {"file": source.path, "line": number})
    return found


def thread_values(window: Window) -> Measured:
    """Thread measures of each rank. Unknown ones are absent."""
    found = Measured()
    for rank, process in process_by_rank(window.recording.processes).items():
        threads = window.recording.facts.get(process.pid, {}).get("threads")
        waiting = window.rate("proc.threads_delay_s", f"pid:{process.pid}")
        if threads:
            found[THREADS_INTRA_OP, rank] = float(threads)
        if waiting is not None:
            found[THREADS_WAITING, rank] = waiting  # seconds of waiting per second
    return found


def helper_thread_values(window: Window, loaders: Sequence[LoaderFacts]) -> Measured:
    """Compute of each rank's loader workers outside the thread that makes batches: in cores, and as a share of their CPU time."""
    found = Measured()
    for rank, table in window.recording.batches.items():
        loader = training_loader(loaders, rank)
        if loader is None or not loader.num_workers:
            continue
        seen = list(_workers(window, made_for(table, loader)))
        total_s, making_s = sum(use.process_s for use in seen), sum(use.making_s for use in seen)
        if total_s >= _WORKER_CPU_MIN_S:
            helping_s = max(0.0, total_s - making_s)
            found[LOADER_HELPER_SHARE, rank] = helping_s / total_s
            found[LOADER_HELPER_CORES, rank] = loader.num_workers * helping_s / sum(use.seconds for use in seen)
    return found


@dataclass(frozen=True, slots=True)
class _Use:
    """CPU seconds of a worker's process and of its thread that makes batches, over `seconds` of wall time."""

    process_s: float
    making_s: float
    seconds: float


def _workers(window: Window, batches: Table) -> Iterator[_Use]:
    """Yields the CPU use of each worker between its first and last reading in the window."""
    ordered = batches[np.lexsort((batches["t_end_ns"], batches["pid"]))]
    for rows in np.split(ordered, np.flatnonzero(np.diff(ordered["pid"])) + 1) if ordered.size else ():
        series = window.recording.samples.get(("proc.cpu_s", f"pid:{rows['pid'][0]}"))
        first = rows[(rows["flags"] & FLAG_FIRST_BATCH) != 0]
        # before its first batch is done, a worker imports modules and opens files
        begin_ns = max(window.start_ns, int(first["t_end_ns"][0]) if first.size else 0)
        inside = None if series is None else (series.t_ns >= begin_ns) & (series.t_ns <= window.end_ns)
        if series is None or inside is None or inside.sum() < 2:
            continue
        times, readings = series.t_ns[inside], series.value[inside]
        within = rows[(rows["t_end_ns"] > times[0]) & (rows["t_end_ns"] <= times[-1])]
        if within.size >= _BATCHES_MIN:
            # from the worker's own count: a long run does not keep all rows
            made = np.diff(np.interp(times[[0, -1]], rows["t_end_ns"], rows["number"]))
            making_s = float(made[0]) * float(within["cpu_ns"].mean()) / 1e9
            yield _Use(float(readings[-1] - readings[0]), making_s, float(times[-1] - times[0]) / 1e9)
