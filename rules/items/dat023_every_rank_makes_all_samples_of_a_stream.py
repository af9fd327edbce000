"""Data loading: whole stream processed on every rank.

What it does: finds an iterable data set that accelerate or transformers divides among ranks behind it, so that each rank makes all
samples and throws those of the others away.

Fires when: input wait is ≥ 5 % of the step, and the loader's data set is an `IterableDatasetShard` over several ranks.

Why it is slow: an `IterableDataset` has no indices to divide. Each rank's shard takes every sample from it and keeps its own
batches; with N ranks the reading, tokenising and cropping of N - 1 of N samples is done for nothing, and more ranks make it no faster.

Evidence: the input wait as a share of the step; the class of the data set that the loader iterates over; the number of ranks.

Fix: divide the stream before anything is done with its samples: `split_dataset_by_node` of Hugging Face datasets, or every N-th
line or shard in `__iter__`; then the loader stays out of `accelerator.prepare`. Or let one process make all batches and send
them (`dispatch_batches=True`), which costs the sending.

Estimate: this run's loader simulated with batches that take one N-th of the time to make, at worst with half of the needless work left:
lines that are skipped have to be read.

False alarms: none where the samples cost little to make, since the loop then hardly waits for input.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.forecast.worker_model import step_with_cheaper_batches
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import common, lost_to_input, model_of, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_SHARD = "IterableDatasetShard"
_LEFT_WORST = 0.5  # of the needless work


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step = input_waits(a), a.value(STEP_TIME_S)
    wait, loader = common(waits), training_loader(a, waits)
    level = severity(wait / step)
    name = loader.dataset.get("class", "") if loader is not None else ""
    if wait < t["input_wait"] * step or level is None or a.workers is None or a.world_size < 2:
        return Clear(RULE.id)
    if not name.endswith(_SHARD):
        return Clear(RULE.id)
    own = 1.0 / a.world_size
    ends = [step_with_cheaper_batches(a.workers, part, waiting=part) for part in (own, own + _LEFT_WORST * (1.0 - own))]
    best, worst = (end[n] if end else step for n, end in enumerate(ends))
    return Finding(
        rule=RULE.id,
        title=f"Data loading: each of {a.world_size} ranks processes the whole stream and keeps one sample in {a.world_size}",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=min(lost_to_input(a), step - best),
        evidence=(
            input_evidence(a, wait, t["input_wait"]),
            Evidence("data set", name, "", None, "reads every sample of the stream on each rank"),
        ),
        fixes=(
            Fix(
                f"shard the stream before any processing: one in {a.world_size} samples for each rank",
                "in the stream's __iter__: for line in itertools.islice(lines, rank, None, world_size), or datasets.distributed."
                "split_dataset_by_node(data, rank, world_size); and keep this loader out of accelerator.prepare",
                where_of(loader),
                "small change",
            ),
            Fix(
                "or let one process make and dispatch all batches",
                "Accelerator(dataloader_config=DataLoaderConfiguration(dispatch_batches=True))",
                None,
                "one line",
            ),
        ),
        saving=model_of(a).saving(best, worst, "this run's batches simulated with only the rank's own samples"),
    )


RULE = rule(
    __name__,
    "Data loading: whole stream processed on every rank",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS),
    thresholds={"input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
