"""Measures how batches are made: in workers or in the training process, and the time spent computing, waiting for a core and blocked."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.steps.step_parts import UNCLOCKED
from rn50_advisor.advisor.model.analysis import LoaderFacts, training_loader
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_BLOCKED_SHARE,
    FETCH_CPU_SHARE,
    FETCH_DELAY_SHARE,
    FETCH_GC_SHARE,
    FETCH_READ_MB,
    FETCH_READ_MB_PER_S,
    FETCH_SYSTEM_SHARE,
    FETCH_WALL_S,
    LOADER_BUSY_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Process, Recording, Table
from rn50_advisor.probes.documents.loader_documents import DescribedDataset, RecordedLoader
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.rank.layout import BATCH_FIELDS, FLAG_FIRST_BATCH, SPAN_CODE

BLOCK_BYTES = 512
COLLECTIONS_NOTED_MIN = 8  # batches in which garbage collections were noted
_ASIDE = (SPAN_CODE["evaluation"], SPAN_CODE["checkpoint"])


@dataclass(frozen=True, slots=True)
class Loading:
    """The making of one rank's training batches over the steady steps; times are means per batch in seconds."""

    workers: int  # 0: batches are made in the training process
    batches: int
    samples: float  # per batch
    wall_s: float
    cpu_s: float
    delay_s: float
    read_bytes: float
    system_s: float | None  # part of `cpu_s` inside the kernel; None for the training process, where it is not measured
    busy_share: float | None  # busy share of the workers' time; None for the training process
    gc_s: float | None = None  # garbage collections in workers; None if not recorded

    @property
    def blocked_s(self) -> float:
        return max(0.0, self.wall_s - self.cpu_s - self.delay_s)

    @property
    def reads(self) -> bool:
        """True if at least one block per sample was read from a device. Below that, the page cache or memory served the data."""
        return self.read_bytes >= BLOCK_BYTES * self.samples


def loader_facts(recording: Recording, ranks: Mapping[int, int]) -> tuple[LoaderFacts, ...]:
    """Every DataLoader of every rank; `ranks` maps pid to rank."""
    found = []
    for pid, facts in recording.facts.items():
        if pid not in ranks:
            continue
        for loader in facts.get("loaders", ()):
            found.append(_loader(loader, ranks[pid], facts))
    return tuple(sorted(found, key=lambda loader: (loader.rank, loader.id)))


def _loader(loader: RecordedLoader, rank: int, facts: RankFacts) -> LoaderFacts:
    size, dataset = loader.get("batch_size"), loader.get("dataset", DescribedDataset())
    return LoaderFacts(
        rank=rank,
        id=loader["id"],
        training=loader.get("training"),
        file=loader.get("file", ""),
        line=loader.get("line", 0),
        num_workers=loader.get("num_workers") or 0,
        batch_size=size if isinstance(size, int) else None,
        persistent_workers=bool(loader.get("persistent_workers")),
        pin_memory=bool(loader.get("pin_memory")),
        dataset=dataset,
        mount=facts.get("mounts", {}).get(dataset.get("root", "")),
        prefetch_factor=loader.get("prefetch_factor"),
        batch_bytes=loader.get("batch_bytes"),
        batch_tensors=loader.get("batch_tensors"),
        library=loader.get("library", ""),
        collate=loader.get("collate"),
        collate_file=loader.get("collate_file", ""),
        collate_line=loader.get("collate_line", 0),
        batch_sampler=loader.get("batch_sampler"),
        shuffle=loader.get("shuffle"),
        made=loader.get("made") or 1,
        fetch_file=loader.get("fetch_file", ""),
        fetch_line=loader.get("fetch_line", 0),
        dispatches=bool(loader.get("dispatches")),
        split_batches=bool(loader.get("split_batches")),
    )


def loading_of(
    recording: Recording, steps: RankSteps, loader: LoaderFacts | None, index_s: float = 0.0
) -> Loading | None:
    """How one rank's batches are made; None if that was not visible (another framework's loader, tensors in memory).
    `index_s`: seconds per step spent drawing indices.
    """
    if loader is not None and loader.dispatches and steps.rank:
        return None  # its workers, if it has any, make a few batches that are never fetched
    beside = loader is not None and loader.beside and loader.num_workers
    inside = None if beside else _in_process(steps, loader, index_s)
    if inside is not None:
        return inside
    span = training_batches(recording, steps, loader)
    if span.size == 0:
        return None
    start, end = int(steps.start_ns.min()), int(steps.end_ns.max())
    wall = (span["t_end_ns"] - span["t_start_ns"]).sum() / 1e9
    workers = len(np.unique(span["pid"])) if loader is None else max(loader.num_workers, 1)
    # The busy share is of the time in which the loop takes batches. The worker's waits between batches show how long it was idle.
    waits = np.minimum(span["wait_ns"], end - start)
    idle = (waits - _aside_ns(recording, steps.rank, span["t_start_ns"] - waits, span["t_start_ns"])).sum() / 1e9
    count = span.size
    return Loading(
        workers=workers,
        batches=count,
        samples=_samples(steps, loader) or float(span["samples"].mean()),
        wall_s=float(wall / count),
        cpu_s=float(span["cpu_ns"].sum() / 1e9 / count),
        delay_s=float(span["run_delay_ns"].sum() / 1e9 / count),
        read_bytes=float(span["blocks"].sum() * BLOCK_BYTES / count),
        system_s=float(span["system_ns"].sum() / 1e9 / count),
        busy_share=float(wall / max(wall + idle, 1e-9)),
        gc_s=_collecting_s(span),
    )


def _collecting_s(span: Table) -> float | None:
    """Garbage collections per batch, over the batches in which they were noted."""
    noted = span["gc_ns"][span["gc_ns"] >= 0]
    return float(noted.mean()) / 1e9 if noted.size >= COLLECTIONS_NOTED_MIN else None


def _aside_ns(
    recording: Recording, rank: int, begin_ns: NDArray[np.int64], end_ns: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Nanoseconds of each interval within the rank's evaluations and checkpoints, during which it takes no training batch."""
    spans = recording.spans.get(rank)
    spans = None if spans is None else spans[np.isin(spans["label"], _ASIDE)]
    if spans is None or spans.size == 0:
        return np.zeros(begin_ns.size)
    spans = spans[np.argsort(spans["t_start_ns"], kind="stable")]
    # a checkpoint may lie within an evaluation: each span counts only the time that it adds to earlier ones
    ends = np.maximum.accumulate(spans["t_end_ns"])
    starts = np.maximum(spans["t_start_ns"], np.append(0, ends[:-1]))
    total = np.cumsum(ends - starts)
    times, taken = (np.stack(pair, axis=1).ravel() for pair in ((starts, ends), (total - (ends - starts), total)))
    return np.asarray(np.interp(end_ns, times, taken) - np.interp(begin_ns, times, taken))


def training_batches(recording: Recording, steps: RankSteps, loader: LoaderFacts | None) -> Table:
    """Batches that workers made for one rank's steady steps; empty if none was recorded."""
    table = recording.batches.get(steps.rank)
    if table is None or table.size == 0:
        return np.empty(0, dtype=[(name, np.int64) for name in (*BATCH_FIELDS, "flags", "pid")])
    start, end = int(steps.start_ns.min()), int(steps.end_ns.max())
    # include a batch that was begun before the first steady step, but not a worker's first batch (it imports modules and opens files)
    span = table[(table["t_end_ns"] > start) & (table["t_start_ns"] < end) & ((table["flags"] & FLAG_FIRST_BATCH) == 0)]
    return np.asarray(made_for(span, loader))


def made_for(rows: Table, loader: LoaderFacts | None) -> Table:
    """Batches of this loader, and batches without a known loader (from spawned workers in runs of older advisors)."""
    return rows if loader is None else rows[(rows["loader"] == loader.id) | (rows["loader"] < 0)]


def making_of(
    recording: Recording, steps: RankSteps, made: Loading, loader: LoaderFacts | None
) -> dict[str, NDArray[np.float64]]:
    """Seconds of `computing` and of `waiting` (neither computing nor waiting for a core) of each timed batch."""
    if made.workers:
        table = training_batches(recording, steps, loader)
        wall = (table["t_end_ns"] - table["t_start_ns"]) / 1e9
        cpu, delay = table["cpu_ns"] / 1e9, table["run_delay_ns"] / 1e9
    else:
        timed = steps.columns["fetches"] > 0
        count = steps.columns["fetches"][timed]
        wall, cpu, delay = (steps.columns[name][timed] / count for name in ("fetch", "fetch_cpu", "fetch_delay"))
    return {"computing": cpu, "waiting": np.clip(wall - cpu - delay, 0.0, None)}


def _samples(steps: RankSteps, loader: LoaderFacts | None) -> float:
    """Samples that the loop gets per batch; 0 if unknown. The worker's own count is 1 if the dataset makes whole batches."""
    batches = (loader.per_step if loader else None) or max(steps.per_step("micro_batches"), 1e-3)
    return steps.per_step("samples") / batches


def _in_process(steps: RankSteps, loader: LoaderFacts | None, index_s: float) -> Loading | None:
    """Batch making in the training process, from the timed fetches of clocked steps; None if they explain less than half of the wait."""
    batches = steps.columns["fetches"].sum()
    if batches == 0 or steps.columns["micro_batches"].sum() == 0:
        return None
    wall = float(steps.columns["fetch"].sum() / batches)
    # without first fetches, which draw the order of an epoch: that belongs to no batch
    usual = steps if steps.epoch_start.all() else steps.keep(~steps.epoch_start)
    waited = usual.per_step("input_wait") - index_s
    # the rest of the wait for dispatched batches is their broadcast
    if not (loader and loader.dispatches) and wall * max(usual.per_step("micro_batches"), 1e-3) < 0.5 * waited:
        return None
    return Loading(
        workers=0,
        batches=int(batches),
        samples=_samples(steps, loader),
        wall_s=wall,
        cpu_s=float(steps.columns["fetch_cpu"].sum() / batches),
        delay_s=float(steps.columns["fetch_delay"].sum() / batches),
        read_bytes=float(steps.columns["fetch_blocks"].sum() * BLOCK_BYTES / batches),
        system_s=None,
        busy_share=None,
    )


def ranks_by_pid(processes: tuple[Process, ...]) -> dict[int, int]:
    return {p.pid: p.rank for p in processes if p.role == "rank" and p.rank is not None}


def loading_values(
    loading: Mapping[int, Loading | None], loaders: Sequence[LoaderFacts], unclocked: Collection[int]
) -> Measured:
    """Measures of how each rank's batches are made. For ranks in `unclocked`, those that need the run-queue delay are missing."""
    found = Measured()
    for rank in unclocked:
        found.missing[FETCH_DELAY_SHARE, rank] = found.missing[FETCH_BLOCKED_SHARE, rank] = UNCLOCKED
    for rank, made in loading.items():
        loader = training_loader(loaders, rank)
        if loader is not None and loader.library:
            why = f"{loader.library} makes the batches: not visible to the recorder"
            found.missing[LOADER_WORKERS, rank] = found.missing[FETCH_WALL_S, rank] = why
            continue
        if loader is not None:
            found[LOADER_WORKERS, rank] = float(loader.num_workers)
        elif made is not None:
            found[LOADER_WORKERS, rank] = float(made.workers)
        if made is None:
            why = "no batch was seen being loaded: another framework's loader, or tensors in memory"
            if loader is not None and loader.dispatches and rank:
                why = "rank 0 loads the batches of all ranks"
            found.missing[FETCH_WALL_S, rank] = why
            continue
        wall = max(made.wall_s, 1e-9)
        found[FETCH_WALL_S, rank] = made.wall_s
        found[FETCH_CPU_SHARE, rank] = min(1.0, made.cpu_s / wall)
        if rank not in unclocked:
            found[FETCH_DELAY_SHARE, rank] = min(1.0, made.delay_s / wall)
            found[FETCH_BLOCKED_SHARE, rank] = min(1.0, made.blocked_s / wall)
        found[FETCH_READ_MB, rank] = made.read_bytes / 1e6
        found[FETCH_READ_MB_PER_S, rank] = made.read_bytes / 1e6 / wall
        if made.system_s is not None:
            found[FETCH_SYSTEM_SHARE, rank] = min(1.0, made.system_s / wall)
        if made.gc_s is not None:
            found[FETCH_GC_SHARE, rank] = min(1.0, made.gc_s / wall)
        if made.busy_share is not None:
            found[LOADER_BUSY_SHARE, rank] = made.busy_share
    return found
