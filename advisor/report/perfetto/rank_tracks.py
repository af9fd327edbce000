"""A process of the trace for each rank: its steps, its GPU's stream, collectives, loader workers, stalls, and its deep window's kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.model.recording import Process, Recording, Table
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.advisor.report.perfetto import kernel_tracks, stall_tracks, step_tracks
from rn50_advisor.advisor.report.perfetto.kernel_tracks import DeepTrace
from rn50_advisor.advisor.report.perfetto.step_tracks import StepPlaces
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook, lanes
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import FLAG_FIRST_BATCH, SPAN_LABELS

STEP_ROWS_MAX = 40_000  # of all ranks: some 300,000 slices, 40 MB of JSON, which the viewers open in seconds
BATCHES_MAX = 40_000
SPANS_MAX = 40_000
_LEAST_EACH = 20  # of a rank, however many ranks there are
_GIB = float(1 << 30)
_PLACED = "length measured; placed at the start of its phase"
_SPAN_TITLES = {
    "gc": "garbage collection",
    "loader_start": "starting the loader",
    "fsync": "fsync",
    "index": "drawing indices",
    "fetch": "making a batch",
    "pin": "pinning batches",
    "unseen": "batches without a backward pass",
    "skipped": "batches skipped to resume",
}
_COLLECTIVE_PHASES = {
    "forward_ns": "forward",
    "backward_ns": "backward",
    "optimizer_ns": "optimizer",
    "gap_ns": "gap",
}


@dataclass(slots=True)
class RanksInTrace:
    """`pids`: the trace's process of each rank. `starts`: the start of each step, by rank."""

    pids: dict[int, int] = field(default_factory=dict)
    starts: dict[int, Mapping[int, int]] = field(default_factory=dict)


def add_ranks(book: TraceBook, recording: Recording, kernels: Mapping[int, DeepTrace]) -> RanksInTrace:
    """Adds all ranks in order. `kernels`: the trace of each rank's deep window, where it is at hand."""
    processes = process_by_rank(recording.processes)
    tables = (recording.steps, recording.batches, recording.spans)
    ranks = sorted({*processes, *(rank for table in tables for rank in table)})
    hosts = {rank: node.host for node in recording.nodes for rank in node.ranks}
    found = RanksInTrace()
    shared = max(1, len(ranks))
    for rank in ranks:
        process = processes.get(rank)
        host = hosts.get(rank, recording.meta.host)
        pid = process.pid if process and process.pid not in found.pids.values() else None
        found.pids[rank] = book.process(f"rank {rank} · {host}" if host else f"rank {rank}", pid)
        one = _Rank(book, recording, rank, found.pids[rank], process)
        places = one.add_steps(max(_LEAST_EACH, STEP_ROWS_MAX // shared))
        found.starts[rank] = places.starts
        one.add_collectives(places)
        stall_tracks.add_stalls(book, found.pids[rank], rank, recording)
        one.add_loop_spans(max(_LEAST_EACH, SPANS_MAX // shared))
        one.add_workers(max(_LEAST_EACH, BATCHES_MAX // shared))
        if rank in kernels:
            kernel_tracks.add_window(book, found.pids[rank], kernels[rank], recording.steps.get(rank), rank)
    return found


class _Rank:
    """Adds the threads of one rank."""

    def __init__(self, book: TraceBook, recording: Recording, rank: int, pid: int, process: Process | None) -> None:
        self._book, self._recording, self._rank, self._pid, self._process = book, recording, rank, pid, process
        self._facts = recording.facts.get(process.pid, RankFacts()) if process else RankFacts()
        self._on_stream: dict[int, tuple[int, int]] = {}

    def add_steps(self, most: int) -> StepPlaces:
        book, rank = self._book, self._rank
        loop = book.thread(self._pid, "training loop", self._pid)
        rows, gpu = self._recording.steps.get(rank), self._recording.gpu_steps.get(rank)
        comm = {int(row["step"]): row for row in self._recording.comm.get(rank, ())}
        if rows is None or not len(rows):
            return StepPlaces()
        rows, folded = step_tracks.bounded(rows, most)
        if folded:
            book.left_out.append(
                f"rank {rank}: {counted(folded, 'earlier step')} share slices, with the sums of their phases"
            )
        stored = int(rows["count"][rows["count"] > 1].sum()) - folded
        if stored > 0:
            book.left_out.append(
                f"rank {rank}: {counted(stored, 'step')} were folded in the run file already, and share slices"
            )
        on_gpu = gpu is not None and len(gpu) > 0
        places = step_tracks.add_steps(
            book,
            loop,
            rows,
            comm={} if on_gpu else comm,
            spans=self._recording.spans.get(rank),
            first_seen_ns=self._process.first_seen_ns if self._process else None,
        )
        if gpu is not None and on_gpu:
            self._add_stream(gpu, places, comm, most)
        return places

    def _add_stream(self, gpu: Table, places: StepPlaces, comm: Mapping[int, np.void], most: int) -> None:
        kept = self._latest(gpu, most, "GPU steps")
        track = self._book.thread(self._pid, "GPU stream (lengths by CUDA events)")
        self._on_stream = step_tracks.add_stream_steps(self._book, track, kept, places.starts, comm)
        # a step's memory holds from its end on
        ends = [(places.starts[step], row) for row in kept if (step := int(row["step"])) in places.starts]
        for column, title in (
            ("allocated_bytes", "GPU memory allocated"),
            ("reserved_bytes", "GPU memory reserved"),
            ("peak_bytes", "GPU memory, highest"),
        ):
            points = [(t_ns, int(row[column]) / _GIB) for t_ns, row in ends if int(row[column]) > 0]
            self._book.counter(self._pid, title, "GiB", points)

    def add_collectives(self, places: StepPlaces) -> None:
        self._add_exchange(places)
        table = self._recording.collectives.get(self._rank)
        rows = [row for row in table if int(row["step"]) in places.phases] if table is not None else []
        if not rows:
            return
        sites = self._facts.get("collectives") or ()
        kinds = sorted({str(site.get("kind") or "") for site in sites} - {""})
        track = self._book.thread(self._pid, "collectives called by the job")
        for row in sorted(rows, key=lambda row: int(row["step"])):
            phases = places.phases[int(row["step"])]
            for column, phase in _COLLECTIVE_PHASES.items():
                length_ns, place = int(row[column]), phases.get(phase)
                if length_ns > 0 and place is not None:
                    args = self._collective_args(row, kinds)
                    span = place[0], min(place[1], place[0] + length_ns)
                    self._book.slice(track, kinds[0] if len(kinds) == 1 else "collectives", span, "collective", args)

    def _collective_args(self, row: np.void, kinds: Sequence[str]) -> dict[str, Any]:
        counts = {
            "calls": "calls",
            "bytes": "bytes",
            "waits": "waits",
            "asynchronous": "asynchronous calls",
            "on_device": "calls that only queue GPU work",
            "norm_calls": "of synchronised batch norm",
            "group_size": "ranks in the group",
        }
        known = {words: int(row[column]) for column, words in counts.items() if int(row[column]) > 0}
        return {"op": ", ".join(kinds), "step": int(row["step"]), **known, "place": _PLACED}

    def _add_exchange(self, places: StepPlaces) -> None:
        """DDP's stamps: how long the exchange of a step's gradients took. It ends with the backward pass."""
        rows = self._recording.comm.get(self._rank)
        if rows is None or not len(rows):
            return
        models = self._facts.get("ddp") or ()
        size = max((int(model.get("total_parameter_size_bytes") or 0) for model in models), default=0)
        group = max((int(model.get("world_size") or 0) for model in models), default=0)
        track = self._book.thread(self._pid, "gradient exchange (DDP, sampled steps)")
        placed = []
        for row in rows[np.argsort(rows["step"], kind="stable")]:
            step, length_ns = int(row["step"]), int(row["comm_ns"])
            host = places.phases.get(step, {})
            end = self._on_stream.get(step) or host.get("comm_exposed") or host.get("backward")
            if end is not None and length_ns > 0:
                placed.append((end[1] - length_ns, end[1], row))
        last = 0
        for start, end_ns, row in placed:
            if end_ns <= last:
                continue
            args = {
                "op": "all_reduce",
                "bytes": size or None,
                "ranks": group or None,
                "step": int(row["step"]),
                "hidden behind backward, ms": max(0, int(row["overlap_ns"])) / 1e6,
                "exposed, ms": step_tracks.exposed_ns(row) / 1e6,
                "place": "length measured; placed at the end of the backward pass",
            }
            self._book.slice(track, "all_reduce of gradients", (max(last, start), end_ns), "collective", args)
            last = end_ns

    def add_loop_spans(self, most: int) -> None:
        """What was timed inside the phases of the loop, and profiled batches that the training process makes itself."""
        items: list[tuple[int, int, str, dict[str, Any]]] = []
        again: dict[tuple[int, int], int] = {}  # a span that is written again as it grows
        for row in self._recording.spans.get(self._rank, ()):
            label = SPAN_LABELS[int(row["label"])] if 0 <= int(row["label"]) < len(SPAN_LABELS) else ""
            if label in _SPAN_TITLES:
                start, end = int(row["t_start_ns"]), int(row["t_end_ns"])
                cpu = int(row["cpu_ns"])
                args = {"step": int(row["step"]), "CPU time, ms": cpu / 1e6 if cpu > 0 else None}
                if int(row["count"]) > 1:
                    args["count"] = int(row["count"])
                item = start, end, _SPAN_TITLES[label], args
                if label == "unseen" and (place := again.get((int(row["label"]), start))) is not None:
                    items[place] = item
                    continue
                again[int(row["label"]), start] = len(items)
                items.append(item)
        for row in self._recording.looks.get(self._rank, ()):
            if int(row["worker"]) < 0:
                items.append(
                    (int(row["t_start_ns"]), int(row["t_end_ns"]), "making a batch (profiled)", _look_args(row))
                )
        kept = self._latest(sorted(items, key=lambda item: item[:2]), most, "spans of the loop")
        self._add_lanes("inside the loop", kept, "loop")

    def add_workers(self, most: int) -> None:
        """A thread for each loader worker, whatever processes it was."""
        table = self._recording.batches.get(self._rank)
        if table is None or not len(table):
            return
        rows = self._latest(table[np.argsort(table["t_start_ns"], kind="stable")], most, "batches")
        workers: dict[tuple[int, int], list[np.void]] = {}
        for row in rows:
            workers.setdefault((int(row["loader"]), int(row["worker"])), []).append(row)
        loaders = {loader for loader, _ in workers}
        for (loader, worker), own in sorted(workers.items()):
            name = f"worker {worker}" if len(loaders) == 1 else f"worker {worker} of loader {loader}"
            items = [(int(r["t_start_ns"]), int(r["t_end_ns"]), "batch", _batch_args(r)) for r in own]
            self._add_lanes(name, items, "worker", tid=int(own[-1]["pid"]) or None)

    def _add_lanes(
        self, name: str, items: Sequence[tuple[int, int, str, Mapping[str, Any]]], category: str, tid: int | None = None
    ) -> None:
        chosen = lanes([item[:2] for item in items])
        tracks = [
            self._book.thread(self._pid, name if lane == 0 else f"{name} ({lane + 1})", tid if lane == 0 else None)
            for lane in range(max(chosen, default=-1) + 1)
        ]
        for lane, (start, end, title, args) in zip(chosen, items, strict=True):
            self._book.slice(tracks[lane], title, (start, end), category, args)

    def _latest(self, rows: Any, most: int, what: str) -> Any:
        if len(rows) > most:
            self._book.left_out.append(f"rank {self._rank}: the first {len(rows) - most:,} of {len(rows):,} {what}")
        return rows[-most:]


def _batch_args(row: np.void) -> dict[str, Any]:
    def ms(column: str) -> float | None:
        return int(row[column]) / 1e6 if int(row[column]) > 0 else None

    return {
        "batch of this worker": int(row["number"]),
        "samples": int(row["samples"]) if int(row["samples"]) > 0 else None,
        "CPU time, ms": ms("cpu_ns"),
        "in the kernel, ms": ms("system_ns"),
        "waited for a core, ms": ms("run_delay_ns"),
        "idle before, ms": ms("wait_ns"),
        "garbage collection, ms": ms("gc_ns"),
        "read, MB": int(row["blocks"]) * 512 / 1e6 if int(row["blocks"]) > 0 else None,
        "first after its start": True if int(row["flags"]) & FLAG_FIRST_BATCH else None,
        "process": int(row["pid"]) or None,
    }


def _look_args(row: np.void) -> dict[str, Any]:
    known: Iterable[tuple[str, str, Callable[[int], float]]] = (
        ("samples", "samples", int),
        ("covered", "profiled samples", int),
        ("wall_ns", "profiled samples, ms", lambda ns: ns / 1e6),
        ("cpu_ns", "of them on a CPU, ms", lambda ns: ns / 1e6),
        ("collate_ns", "collating, ms", lambda ns: ns / 1e6),
        ("batch_bytes", "bytes of the batch", int),
        ("file_bytes", "bytes of the file", int),
    )
    return {words: convert(int(row[column])) for column, words, convert in known if int(row[column]) > 0}
