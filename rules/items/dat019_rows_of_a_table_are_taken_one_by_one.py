"""Data loading: table library called for each item.

What it does: finds a data set that takes each item out of a pandas or polars table, or computes it with the library.

Fires when: input wait is ≥ 5 % of the step, or training waits for cores that workers hold for ≥ 10 % of it, and in ≥
30 % of the stack samples of processes that make items one is inside the library of the table.

Why it is slow: for one row the library builds an object with an index, finds a type for values of all columns and
copies them, which takes 30 to 300 µs. A row of an array takes one.

Evidence: the input wait as a share of the step; the share of stack samples inside the library, with its standard error;
the user's line.

Fix: take the columns out of the table once, in `__init__`, as arrays or tensors of one type each, and index these; then
whole batches can be indexed at once (DAT016).

Estimate: this run's loader simulated with batches that lack the share of time spent inside the library, plus or minus
its error; at worst a fifth of that time is left, at best warm caches also shorten the rest of the step, and if workers
hold its cores, it gets these.

False alarms: tables that are read from a file for each item are not counted. What an item computes with the library
beside taking a row (calendar features, a rolling mean, a join) is counted; it can be done once before training, too.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_WALL_S,
    LOADER_TABLE_ERROR,
    LOADER_TABLE_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.items.frequent_calls import FREQUENT, finding_of
from rn50_advisor.rules.rule import Thresholds, rule

_LEFT_WORST = 0.2  # share of the time in the library: arrays take some, too


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    name = a.table.name if a.table else ""
    return finding_of(
        a,
        t,
        RULE.id,
        a.table,
        measures=(LOADER_TABLE_SHARE, LOADER_TABLE_ERROR),
        title=f"Data loading: {name} called for each item",
        where=f"inside {name}",
        fix=(
            f"do the {name} work once for all items, and index arrays",
            'self.values = table[columns].to_numpy("float32")  # in __init__; then self.values[index]. Dates, rolling means and joins: '
            "once for each table or series, too",
        ),
        basis="this run's batches simulated without the table",
        left=_LEFT_WORST,
    )


RULE = rule(
    __name__,
    "Data loading: table library called for each item",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS),
    thresholds=FREQUENT,
)
