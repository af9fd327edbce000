"""Data loading: same resource reopened for every item.

What it does: finds a data set that opens, reads or builds the same thing for each item: an archive, an HDF5 or database
connection, an annotation file, a tokenizer.

Fires when: input wait is ≥ 5 %, and in ≥ 30 % of the stack samples of processes that make items one is in such a call.

Why it is slow: opening reads directories, indices or whole files. It is done once for each item instead of once for
each worker.

Evidence: the input wait as a share of the step; the share of stack samples that found a process in this call, with its
standard error; the user's line. The call opens, reads or builds something by its name, and the code shows that its
arguments are the same for each item: constants, names of the module, attributes that only `__init__` sets.

Fix: keep what was opened, for each worker on its own: open it when a worker needs it first. What `__init__` opens is
shared by forked workers, which then move each other's position in the file; spawned workers cannot receive it.

Estimate: this run's loader simulated with batches that lack the share of time spent in the call, plus or minus its
error; at best warm caches also shorten the rest of the step.

False alarms: a call whose arguments may depend on the item is never counted, nor one whose arguments the code does not
show, such as an object that another function returns. The call may draw random numbers despite its name, or what it reads
may change during training: then it cannot be kept. An attribute of an object that stays the same (`self.options.path`) is
taken for a setting; if it is a file that was opened before, each read gets something else.
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


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    name = a.repeated.name if a.repeated else ""
    return finding_of(
        a,
        t,
        RULE.id,
        a.repeated,
        measures=(LOADER_REPEATED_SHARE, LOADER_REPEATED_ERROR),
        title=f"Data loading: {name} repeats the same work for every item",
        where="with the same arguments for every item",
        fix=(
            f"call {name} once per worker, and keep the result",
            "if self.kept is None: self.kept = ...  # at a worker's first item; forked workers would share what __init__ opens",
        ),
        basis="this run's batches simulated without this call",
    )


RULE = rule(
    __name__,
    "Data loading: same resource reopened for every item",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS),
    thresholds=FREQUENT,
)
