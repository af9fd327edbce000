"""Data loading: whole stream processed by each rank or worker.

What it does: finds an iterable data set whose samples are divided among ranks or workers after they are made, so that each makes all
samples and throws those of the others away: by accelerate or transformers, by `split_dataset_by_node` of a stream whose shards the ranks
cannot share evenly, or by the data set's own `if i % world_size == rank`.

Fires when: input wait is ≥ 5 % of the step, or waiting for cores that the workers hold ≥ 10 %, and the loader's data set
is an `IterableDatasetShard` over several ranks, a stream of Hugging Face with another number of shards than a multiple of the ranks, or
its source divides samples that it has already processed.

Why it is slow: an `IterableDataset` has no indices to divide. Each rank's shard takes every sample from it and keeps its own
batches; with N ranks the reading, tokenising and cropping of N - 1 of N samples is done for nothing, and more ranks make it no faster.

Evidence: the input wait as a share of the step; the class of the data set that the loader iterates over; the number of ranks.

Fix: divide the stream before anything is done with its samples: `split_dataset_by_node` of Hugging Face datasets, or every N-th
line or shard in `__iter__`; then the loader stays out of `accelerator.prepare`. Or let one process make all batches and send
them (`dispatch_batches=True`), which costs the sending.

Estimate: this run's loader simulated with batches that take one N-th of the time to make, at worst with half of the
needless work left: lines that are skipped have to be read. Where workers hold the cores, the wait for cores goes with
their work, too.

False alarms: none where the samples cost little to make, since the loop then hardly waits for input.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, StreamSplit
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.input.data_loaders import LoaderFacts
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import (
    common,
    crowding_evidence,
    lost_to_input,
    model_of,
    training_loader,
    where_of,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.preprocessing import CROWDED, crowd_s, steps_without
from rn50_advisor.rules.rule import Thresholds, confidence, rule, severity

_SHARD = "IterableDatasetShard"
_LEFT_WORST = 0.5  # of the needless work


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step = input_waits(a), a.value(STEP_TIME_S)
    wait, loader = common(waits), training_loader(a, waits)
    crowd = crowd_s(a, t["workers_share"])
    waited, crowded = wait >= t["input_wait"] * step, crowd >= t["crowding"] * step
    level = severity((wait + crowd if crowded else wait) / step)
    name = loader.dataset.get("class", "") if loader is not None else ""
    if not (waited or crowded) or level is None or a.workers is None:
        return Clear(RULE.id)
    split = a.stream_splits.get(name)
    unsharded = loader.dataset.get("divided_among", 1) if loader is not None else 1
    parts = unsharded if unsharded > 1 else _parts(a, loader, split, sharded=name.endswith(_SHARD))
    if parts < 2:
        return Clear(RULE.id)
    gone = 1.0 - 1.0 / parts, (1.0 - _LEFT_WORST) * (1.0 - 1.0 / parts)
    best, worst = steps_without(a, t, a.workers, gone, waited=waited, crowded=crowded)
    of = "ranks" if parts == a.world_size else "workers"
    return Finding(
        rule=RULE.id,
        title=f"Data loading: each of {parts} {of} processes the whole stream and keeps one sample in {parts}",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=min(lost_to_input(a) + (crowd if crowded else 0.0), step - best),
        evidence=(
            input_evidence(a, wait, t["input_wait"]) if waited else crowding_evidence(step, crowd, t["crowding"]),
            Evidence(
                "data set", name, "", None, f"processes every sample of the stream on each of the {of}", "continues"
            ),
        ),
        fixes=(_shards(parts, where_of(loader)),)
        if unsharded > 1
        else _fixes(parts, where_of(loader))
        if split is None
        else _fixes_of(split, parts),
        saving=model_of(a).saving(best, worst, "this run's batches simulated with only their own samples"),
    )


def _parts(a: Analysis, loader: LoaderFacts | None, split: StreamSplit | None, *, sharded: bool) -> int:
    """Among how many the processed samples are divided; 1 if they are not."""
    if split is None:
        return a.world_size if sharded else 1
    workers = max(1, loader.num_workers) if loader is not None and split.of_workers else 1
    return (a.world_size if split.of_ranks else 1) * workers


def _shards(parts: int, where: Where | None) -> Fix:
    """For a stream of Hugging Face, which divides its shards among the ranks only if all get as many."""
    change = (
        f"a multiple of {parts}, times the number of workers: data.to_iterable_dataset(num_shards={4 * parts}), or as many files; a stream "
        "with any other number is divided sample by sample"
    )
    return Fix(f"as many shards for each of the {parts} ranks", change, where, "one line")


def _fixes(parts: int, where: Where | None) -> tuple[Fix, ...]:
    """For a library's shards."""
    return (
        Fix(
            f"shard the stream before any processing: one in {parts} samples for each rank",
            "in the stream's __iter__: for line in itertools.islice(lines, rank, None, world_size), or datasets.distributed."
            "split_dataset_by_node(data, rank, world_size); and keep this loader out of accelerator.prepare",
            where,
            "small change",
        ),
        Fix(
            "or let one process make and dispatch all batches",
            "Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))",
            None,
            "one line",
        ),
    )


def _fixes_of(split: StreamSplit, parts: int) -> tuple[Fix, ...]:
    """For a data set's own division."""
    where = Where(split.file, split.line)
    return (
        Fix(
            f"divide lines or files before they are processed: one in {parts}",
            "for line in itertools.islice(lines, part, None, parts): yield parse(line)",
            where,
            "small change",
        ),
        Fix(
            "or give each its own files",
            "files[part::parts], which spares reading the others, too",
            where,
            "small change",
        ),
    )


RULE = rule(
    __name__,
    "Data loading: whole stream processed by each rank or worker",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS),
    thresholds=CROWDED,
)
