"""Data loading: in-memory items fetched one by one.

What it does: finds a training DataLoader whose data set holds its samples as tensors or arrays, and whose batches are
nevertheless put together item by item.

Fires when: an in-memory data set, ≤ 25 µs a sample, and indexing whole batches would save ≥ 5 % of the step.

Why it is slow: for each sample Python calls `__getitem__`, makes a small tensor of each field and copies all of them
into the batch; indexing the tensor with all indices of a batch does this in one call.

Evidence: the input wait as a share of the step; the time per sample takes; the names of the tensors or arrays.

Fix: `DataLoader(data, batch_size=None, sampler=BatchSampler(RandomSampler(data), batch_size, drop_last=False))`: the data
set gets a list of indices and returns the whole batch. Its `__getitem__` must accept such a list, as plain indexing of
tensors and arrays does. Workers are not needed then.

Estimate: what remains of fetching is 60 to 180 µs a batch, 0.4 to 1.1 µs an index and its bytes at 1.2 to 5 GB/s.

False alarms: a data set that computes for each sample (a transform, a tokenizer) needs more than 25 µs; one whose
samples are large is limited by their bytes, and the estimate leaves nothing to gain.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import common, model_of, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# (best, worst) of fetching a whole batch between two steps, when the caches hold the model. Measured on two cores with one thread and two,
# in six loops with batches of 64 to 1,024 samples of 72 B to 12 KB: 135 to 852 µs, nine of twelve between these lines, two up to a
# quarter faster, one (with two threads) a fifth slower; on a slower machine 512 samples of 1 KB took 1,140 us beside 11 ms of computing.
# RandomSampler draws the indices.
_BATCH_S = (60e-6, 180e-6)
_INDEX_S = (0.4e-6, 1.1e-6)
_BYTES_PER_S = (5e9, 1.2e9)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step = a.by_rank(STEP_INPUT_WAIT_S), a.value(STEP_TIME_S)
    loader = training_loader(a, waits)
    if loader is None or not _one_by_one(loader):
        return Clear(RULE.id)
    size = int(loader.batch_size or 1)
    sample_s = max(a.by_rank(FETCH_WALL_S).values()) / size
    best, worst = (_step_with(a, _whole_batch_s(loader, size, n)) for n in (0, 1))
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if sample_s > t["sample"] or step - worst < t["saved"] * step or level is None:
        return Clear(RULE.id)
    arrays = ", ".join(loader.dataset.get("arrays", ()))
    return Finding(
        rule=RULE.id,
        title="Data loading: in-memory items fetched one by one",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=(
            input_evidence(a, common(waits), t["saved"]),
            Evidence("time per sample", sample_s, "s", t["sample"], f"{size:,} samples per batch", form="explains"),
            Evidence("in memory", arrays, "", None, f"of {loader.dataset.get('class')}"),
        ),
        fixes=(_fix(loader, size),),
        saving=model_of(a).saving(model_of(a).at_best(best), worst, "one indexing operation per batch"),
    )


def _one_by_one(loader: LoaderFacts) -> bool:
    dataset = loader.dataset
    plain = loader.collate == "default_collate" and loader.batch_sampler is None and loader.batch_size is not None
    return plain and bool(dataset.get("arrays")) and not dataset.get("transforms") and not loader.library


def _whole_batch_s(loader: LoaderFacts, size: int, n: int) -> float:
    return _BATCH_S[n] + _INDEX_S[n] * size + (loader.batch_bytes or 0) / _BYTES_PER_S[n]


def _step_with(a: Analysis, fetch_s: float) -> float:
    model = model_of(a)
    return model.step_if({(rank, "input_wait"): min(own["input_wait"], fetch_s) for rank, own in model.own.items()})


def _fix(loader: LoaderFacts, size: int) -> Fix:
    sampler = "RandomSampler" if loader.shuffle else "SequentialSampler"
    change = f"DataLoader(data, batch_size=None, sampler=BatchSampler({sampler}(data), {size}, drop_last=False))"
    return Fix("index whole batches", f"{change}; __getitem__ then gets a list", where_of(loader), "small change")


RULE = rule(
    __name__,
    "Data loading: in-memory items fetched one by one",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, LOADER_WORKERS, FETCH_WALL_S),
    thresholds={
        "sample": Threshold(
            25e-6, "s: plain indexing took 2 to 14 µs; from here on a sample is computed, not only copied"
        ),
        "saved": Threshold(0.05, "of the step, at least: severity 'medium' begins here"),
    },
)
