"""Data loading: whole collection processed for every item.

What it does: finds a data set that permutes, copies, searches or joins a whole collection for each of its items: a search for a name
in a list of all names, a permutation of all indices for one negative sample, a list made of all keys of a dictionary, a list of all items
but a few from which one is drawn, a file that is read from its start to the item's line. Or that takes the rows of one array or tensor one
by one, to join them again.

Fires when: input wait is ≥ 5 % of the step, or training waits for cores that workers hold for ≥ 10 % of it, and in ≥
30 % of the stack samples of processes that make items one is in such a call.

Why it is slow: each item costs as much as the collection is long, so that the data set becomes slower the larger it is.

Evidence: the input wait as a share of the step; the share of stack samples in the call, with its standard error; the
user's line.

Fix: by what the call does: search a set or a dictionary, draw the few indices alone, keep a list beside a dictionary, use
`collections.deque` as a queue, join once, seek to where a line begins, draw again instead of leaving items out first, take rows at once by
a slice or their indices.

Estimate: this run's loader simulated with batches that lack the share of time spent in this call, plus or minus its
error; at worst a fifth of that time is left, of a conversion a third, of rows taken by their indices five sixths, of a slice a
seventh; at best warm caches also shorten the rest of the step, and if workers hold its cores, it gets these.

False alarms: small collections do not take 30 % of an item. What the line does beside this call is counted, too. A list from which items
are drawn has no other use in its function, and no weights. Rows are those of what the file shows to be an array; elements that are
decoded, computed or taken from lists are not counted. Rows of 100 KiB and more take as long by their indices: copying them is the work.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_WALL_S,
    LOADER_COLLECTION_ERROR,
    LOADER_COLLECTION_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.items.frequent_calls import FREQUENT, finding_of
from rn50_advisor.rules.rule import Thresholds, rule
from rn50_advisor.rules.whole_collections import ADVICE

_LEFT_WORST = 0.2  # share of the time in the call: what replaces it takes some, too


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    call = a.through
    advice = ADVICE[call.work if call and call.work else "searches"]
    return finding_of(
        a,
        t,
        RULE.id,
        call,
        measures=(LOADER_COLLECTION_SHARE, LOADER_COLLECTION_ERROR),
        title=f"Data loading: {call.name if call else ''} {advice.does} for every item",
        where="in this call",
        fix=(advice.fix, advice.change),
        basis="this run's batches simulated without this call",
        left=advice.left_worst or _LEFT_WORST,
    )


RULE = rule(
    __name__,
    "Data loading: whole collection processed for every item",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS),
    thresholds=FREQUENT,
)
