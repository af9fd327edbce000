"""Data loading: nested lists decoded one by one.

What it does: finds a training DataLoader whose Hugging Face data set keeps arrays as lists in lists, or returns long rows of numbers as
Python lists, while decoding them takes a large part of making a batch.

Fires when: input wait ≥ 5 % of the step, or ≥ 10 % waiting for cores that the workers hold; decoding is ≥ 30 % of an item's time.

Why it is slow: Arrow stores all numbers of a row in one piece. A flat list becomes an array or a tensor without a look at its numbers. Of
lists in lists `datasets` makes an array or a tensor for each inner list and stacks these; without a format it makes a Python object of
each number, of which a collate function then makes a tensor again.

Evidence: the input wait as a share of the step; the format in which the data set returns its items; the inner lists and the numbers in
a few of its rows; the time to make an item.

Fix: store each array as one flat list per row and give it its shape in the collate function; `with_format("torch")` for rows of numbers.
`Array2D` and the like keep the shape, and are faster than lists where these are many and short.

Estimate: this run's loader simulated without this decoding. Where arrays or tensors come from such a data set directly and nothing but
numbers, it is an item's time but 25 us and 3 % at best, 150 us and 15 % at worst. Elsewhere 8 us for each inner list as torch's tensor,
4.5 as NumPy's array, 0.12 us for each number as a Python object that becomes a tensor's element; 0.6 and 1.4 times that at worst and
at best.

False alarms: items that are decoded from files, tokenised or augmented take so long that this does not matter. Rows that a transform of
the job's own takes as lists stay below 30 % if it does much with them. A map-style data set alone is looked at, its columns of numbers
only.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.input_measures import FETCH_CPU_SHARE, FETCH_WALL_S, LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_SAMPLES, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.loader_documents import DescribedDataset, NumberColumn
from rn50_advisor.rules.analysis_reading import (
    batches_made,
    better_than_workers,
    common,
    crowding_evidence,
    lost_to_input,
    model_of,
    training_loader,
    where_of,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.preprocessing import CROWDED, crowd_s, steps_without
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Seconds for each inner list, and for each number, by the format in which items are returned. Measured with datasets 5.2 on rows of 512 to
# 16,384 numbers: 7.5 to 8.4 us a list as torch's tensors, 4.0 to 5.0 as NumPy's arrays; 7 to 31 ns a number as Python objects, and 101 to
# 127 for a tensor made of them.
_PER_LIST = {"torch": 8e-6, "numpy": 4.5e-6}
_PER_NUMBER = {"python": 0.12e-6, "custom": 0.12e-6}
_RATIO = (1.4, 0.6)  # of these, at best and at worst: other machines, other collate functions
_SHARE_MAX = (0.97, 0.85)  # of an item's time
# What a row of numbers takes as a tensor, at best in batches, at worst alone: 18 to 29 us, and 78 to 135. Lists took up to 31 us each where
# torchvision was imported, of which the library then looks for a part that is not there: what an item takes says more than its lists.
_ITEM_S = (25e-6, 150e-6)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    waits, step = input_waits(a), a.value(STEP_TIME_S)
    wait, crowd, loader = common(waits), crowd_s(a, t["workers_share"]), training_loader(a, waits)
    waited, crowded = wait >= t["input_wait"] * step, crowd >= t["crowding"] * step
    level = severity((wait + crowd if crowded else wait) / step)
    if not (waited or crowded) or level is None or loader is None or a.workers is None:
        return Clear(RULE.id)
    data, form = _described(loader.dataset)
    columns = [(column, seconds) for column in data.get("columns", ()) if (seconds := _decoding_s(column, form)) > 0.0]
    size = a.value(STEP_SAMPLES) / max([1.0, *batches_made(a).values()])
    cpu = a.by_rank(FETCH_CPU_SHARE)
    item_s = max(wall_s * cpu.get(rank, 1.0) for rank, wall_s in a.by_rank(FETCH_WALL_S).items()) / size
    by_lists_s = sum(seconds for _, seconds in columns)
    spent = [ratio * by_lists_s for ratio in _RATIO]
    if data is loader.dataset and form in _PER_LIST and not data.get("other_columns"):
        collate_s = (a.sample.collate_s or 0.0) / size if a.sample is not None else 0.0
        spent = [item_s - collate_s - left_s for left_s in _ITEM_S]
    shares = zip(spent, _SHARE_MAX, strict=True)
    most, least = (min(at_most, max(0.0, seconds / item_s)) for seconds, at_most in shares)
    if by_lists_s < t["counted"] * item_s or (most + least) / 2 < t["share"]:
        return Clear(RULE.id)
    best, worst = steps_without(a, t, a.workers, (most, least), waited=waited, crowded=crowded)
    column = max(columns, key=lambda each: each[1])[0]
    return Finding(
        rule=RULE.id,
        title="Data loading: "
        + ("nested lists decoded one by one" if form in _PER_LIST else "rows of numbers decoded as Python objects"),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=min(lost_to_input(a) + (crowd if crowded else 0.0), step - best),
        evidence=(
            input_evidence(a, wait, t["input_wait"]) if waited else crowding_evidence(step, crowd, t["crowding"]),
            Evidence(
                "decoding",
                (most + least) / 2 * item_s,
                "s",
                t["share"] * item_s,
                _words(column, form, item_s),
                "explains",
            ),
        ),
        fixes=(Fix(*_fix(column, form), where_of(loader), "small change"),),
        saving=model_of(a).saving(best, worst, "this run's batches without decoding lists"),
        circumstances=frozenset({"better than workers"} if better_than_workers(a, (best * worst) ** 0.5) else ()),
    )


def _described(dataset: DescribedDataset) -> tuple[DescribedDataset, str]:
    """The data set of this library, by itself or inside wrappers, and its format."""
    while "format" not in dataset and ("inner" in dataset or dataset.get("parts")):
        dataset = dataset["inner"] if "inner" in dataset else dataset["parts"][0]
    return dataset, dataset.get("format", "")


def _decoding_s(column: NumberColumn, form: str) -> float:
    return column["lists"] * _PER_LIST.get(form, 0.0) + column["numbers"] * _PER_NUMBER.get(form, 0.0)


def _words(column: NumberColumn, form: str, item_s: float) -> str:
    of = f"of the {duration(item_s)} per item"
    if form in _PER_LIST:
        return f"{of}, by {column['lists']:,.0f} inner lists in a row of `{column['name']}`, each made a {form} array"
    return f"{of}, by {column['numbers']:,.0f} numbers in a row of `{column['name']}`, each made a Python object"


def _fix(column: NumberColumn, form: str) -> tuple[str, str]:
    name = column["name"]
    flat = f'data.map(lambda row: {{"{name}": numpy.ravel(row["{name}"])}}), kept; batch["{name}"].view(batch, rows, columns) in collate'
    if form in _PER_LIST:
        return f"store `{name}` as one flat list per row, and give it its shape later", flat
    fast = 'data.with_format("torch")'
    if form == "custom":  # its transform gets lists, and another format would replace it
        fast = 'data.with_format("numpy"), and its transform in the collate function or in a data set around it'
    return f"let `{name}` be read as tensors", f"{fast}; {flat}" if column["lists"] else fast


RULE = rule(
    __name__,
    "Data loading: nested lists decoded one by one",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, STEP_SAMPLES, FETCH_WALL_S, LOADER_WORKERS),
    thresholds={
        **CROWDED,
        "share": Threshold(0.30, "of an item's time: the rest is what the rule cannot make faster"),
        "counted": Threshold(
            0.15,
            "of an item's time, by its lists and numbers: where other things took part, they took up to four times it",
        ),
    },
)
