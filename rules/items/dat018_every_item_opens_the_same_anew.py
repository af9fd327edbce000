"""Data loading: same work repeated for every item.

What it does: finds a data set or a `collate_fn` that does the same for each item: it opens or reads an archive, an HDF5 or database
connection, an annotation file, builds a tokenizer, or computes a filter bank, a window, a table of words or a grid of positions.

Fires when: input wait is ≥ 5 %, and in ≥ 30 % of the stack samples of processes that make items one does such work.

Why it is slow: opening reads directories, indices or whole files, and a table is computed element by element. Once for each worker
is enough; it is done once for each item.

Evidence: the input wait as a share of the step; the share of stack samples that found a process in this work, with its
standard error; the user's line. A call opens, reads or builds something by its name, and the code shows that its
arguments are the same for each item: constants, names of the module, attributes that only `__init__` sets. Computing uses, by the
source of the functions on the stack, nothing of the item, its shape, random numbers, files, or what any of the job's files changes.

Fix: keep what was opened, for each worker on its own: open it when a worker needs it first. What `__init__` opens is
shared by forked workers, which then move each other's position in the file; spawned workers cannot receive it. What is computed
is made in `__init__`, or by a function under `functools.lru_cache`.

Estimate: this run's loader simulated with batches that lack the share of time spent in this work, plus or minus its
error; at best warm caches also shorten the rest of the step.

False alarms: a call whose arguments may depend on the item is never counted, nor one whose arguments the code does not
show, such as an object that another function returns. The call may draw random numbers despite its name, or what it reads
may change during training: then it cannot be kept. An attribute of an object that stays the same (`self.options.path`) is
taken for a setting; if it is a file that was opened before, each read gets something else. What each item fills is not counted, but
what a caller further out changes in place has to be copied.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_WALL_S,
    LOADER_REPEATED_ERROR,
    LOADER_REPEATED_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.items.frequent_calls import FREQUENT, finding_of
from rn50_advisor.rules.rule import Thresholds, rule

_OPENED = (
    "call {name} once per worker, and keep the result",
    "if self.kept is None: self.kept = ...  # at a worker's first item; forked workers would share what __init__ opens",
)
_COMPUTED = (
    "compute it once, and keep the result",
    "self.kept = ... in __init__, or functools.lru_cache on a function of the settings; where an item changes it in place, a copy",
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    call = a.repeated
    name = call.name if call else ""
    computes = call is not None and call.computes
    title, change = _COMPUTED if computes else _OPENED
    more = f" (also {', '.join(line.words for line in call.more)})" if call and call.more else ""
    return finding_of(
        a,
        t,
        RULE.id,
        call,
        measures=(LOADER_REPEATED_SHARE, LOADER_REPEATED_ERROR),
        title=f"Data loading: {name} {'computes' if computes else 'repeats'} the same {'' if computes else 'work '}for every item",
        where="computing what uses nothing of the item" if computes else "with the same arguments for every item",
        fix=(title.format(name=name) + more, change),
        basis="this run's batches simulated without this work"
        if computes
        else "this run's batches simulated without this call",
    )


RULE = rule(
    __name__,
    "Data loading: same work repeated for every item",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS),
    thresholds=FREQUENT,
)
