"""Data loading: indices mapping overhead.

What it does: finds a training DataLoader whose Hugging Face data set has an indices mapping, as `shuffle`, `select`,
`filter` and `train_test_split` leave it, while the look-ups in this mapping take a large part of fetching a batch.

Fires when: the data set has an indices mapping, and without it the step would be ≥ 5 % shorter.

Why it is slow: these calls copy no rows; they keep a table of row numbers. For each item `datasets` looks up one number
in this table through Python and Arrow objects, which takes 7 to 15 µs, as long as fetching a short row itself.

Evidence: the input wait as a share of the step; the time of one lookup, measured in this run's mapping when the loader
was made; the time to fetch an item.

Fix: let torch hold the indices, in a list: `Subset` or `random_split` instead of `select`, `filter` or
`train_test_split`; no `shuffle` before a loader that shuffles itself. Or `flatten_indices()`, which rewrites the data set
in its new order: about 70 µs a row once, so that it pays after seven passes or so, unless the result is kept.

Estimate: this run's loader simulated with batches whose look-ups are gone; an item becomes faster by 0.75 to 1.3
look-ups if it is made of Python objects, by 0.2 to 1.3 in other formats (torch, numpy). Nothing is reported if that would
not shorten the step.

False alarms: items that are decoded, tokenised or large take so long that the mapping does not matter, and so do batches
that workers make in time: both stay below 5 % of the step. What a mapping costs in reads from a slow disk is not
estimated; DAT002 finds such a disk. A mapping inside an IterableDataset, and the parts of a concatenation after the
fourth, are not seen.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.forecast.worker_model import step_with_cheaper_batches
from rn50_advisor.advisor.model.measures.input_measures import FETCH_WALL_S
from rn50_advisor.advisor.model.measures.step_measures import (
    STEP_INPUT_WAIT_S,
    STEP_SAMPLES,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.loader_documents import DescribedDataset
from rn50_advisor.rules.analysis_reading import (
    batches_made,
    better_than_workers,
    common,
    model_of,
    training_loader,
    where_of,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Time that an item gains without the mapping, in look-ups, at best and at worst, by the format in which it is returned. Measured with
# datasets 5.2 on 10,000 to a million rows of 16 numbers, with look-ups of 11 to 14 µs: in batches, Python objects gained 12.6 to 18 µs and
# torch's tensors 2.8 to 11; fetched one by one, Python objects gained 17 to 24. A stand-in gained 1.2 to 1.3 in training.
_GAINED = {"python": (1.3, 0.75)}
_GAINED_IN_OTHER_FORMATS = (1.3, 0.2)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step = input_waits(a), a.value(STEP_TIME_S)
    loader = training_loader(a, waits)
    lookup_s = _lookup_s(loader.dataset) if loader is not None else 0.0
    if loader is None or a.workers is None or lookup_s <= 0.0:
        return Clear(RULE.id)
    size = a.value(STEP_SAMPLES) / max([1.0, *batches_made(a).values()])
    item_s = max(a.by_rank(FETCH_WALL_S).values()) / size
    gained = _GAINED.get(_format(loader.dataset), _GAINED_IN_OTHER_FORMATS)
    best, worst = (_step_without(a, times * lookup_s * size)[n] for n, times in enumerate(gained))
    lost = step - 0.5 * (best + worst)
    level = severity(lost / step)
    if item_s < lookup_s or step - worst < t["saved"] * step or level is None:
        return Clear(RULE.id)
    made = ", as Python objects" if _format(loader.dataset) == "python" else ""
    return Finding(
        rule=RULE.id,
        title="Data loading: indices mapping looked up for every item",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        evidence=(
            input_evidence(a, common(waits), t["saved"]),
            Evidence("one lookup", lookup_s, "s", None, f"of the {duration(item_s)} per item{made}"),
        ),
        fixes=_fixes(loader),
        saving=model_of(a).saving(best, worst, "this run's batches without the index lookups"),
        circumstances=frozenset({"better than workers"} if better_than_workers(a, worst) else ()),
    )


def _lookup_s(dataset: DescribedDataset) -> float:
    """Seconds to look up one item of this data set in the mappings inside it: of a concatenation the mean over its described parts."""
    if dataset.get("lookup_ns"):
        return (dataset["lookup_ns"] or 0) / 1e9
    if "inner" in dataset:
        return _lookup_s(dataset["inner"])
    parts = [(part.get("length") or 0, _lookup_s(part)) for part in dataset.get("parts", ())]
    return sum(length * seconds for length, seconds in parts) / max(1, sum(length for length, _ in parts))


def _format(dataset: DescribedDataset) -> str:
    inside = dataset.get("inner") or next(iter(dataset.get("parts", ())), None)
    return dataset.get("format") or (_format(inside) if inside else "")


def _step_without(a: Analysis, batch_s: float) -> tuple[float, float]:
    """(best, worst) step time if the slowest rank's batches took `batch_s` less computing."""
    step = a.value(STEP_TIME_S)
    feed = max(a.workers.feeds.values(), key=lambda f: f.alone_s) if a.workers and a.workers.feeds else None
    if a.workers is None or feed is None or not feed.computing_s:
        return step, step
    computing_s = sum(feed.computing_s) / len(feed.computing_s)
    return step_with_cheaper_batches(a.workers, max(0.0, 1.0 - batch_s / max(computing_s, 1e-9))) or (step, step)


def _fixes(loader: LoaderFacts) -> tuple[Fix, ...]:
    instead = "torch.utils.data.Subset(data, indices) or random_split(data, [0.9, 0.1]) instead of select, filter or train_test_split"
    if loader.shuffle:
        instead = f"no data.shuffle(), as the loader shuffles; {instead}"
    return (
        Fix("let torch handle order and selection of items", instead, where_of(loader), "small change"),
        Fix(
            "rewrite the data set in its new order",
            "data.flatten_indices()  # once: about 70 µs a row, which pays after about seven passes",
            where_of(loader),
            "one line",
        ),
    )


RULE = rule(
    __name__,
    "Data loading: indices mapping overhead",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, STEP_SAMPLES, FETCH_WALL_S),
    thresholds={"saved": Threshold(0.05, "of the step, at least: severity 'medium' begins here")},
)
