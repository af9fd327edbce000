"""Every item opens the same anew.

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
error.

False alarms: a call whose arguments may depend on the item is never counted, nor one whose arguments the code does not
show, such as an object that another function returns. The call may draw random numbers despite its name, or what it reads
may change during training: then it cannot be kept.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.forecast.worker_model import step_with_cheaper_batches
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_WALL_S,
    LOADER_REPEATED_ERROR,
    LOADER_REPEATED_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import better_than_workers, common, lost_to_input, model_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_STANDARD_ERRORS = 1.64  # a confidence of 90 %


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    waits, step, call = input_waits(a), a.value(STEP_TIME_S), a.repeated
    wait, share, error = common(waits), a.get(LOADER_REPEATED_SHARE), a.get(LOADER_REPEATED_ERROR) or 0.0
    level = severity(wait / step)
    if wait < t["input_wait"] * step or level is None or a.workers is None:
        return Clear(RULE.id)
    if share is None:  # stacks are sampled only while the loop waits for input
        return NotMeasured(RULE.id, (LOADER_REPEATED_SHARE,))
    if share < t["repeated"] or call is None:
        return Clear(RULE.id)
    left = [min(1.0, max(0.0, 1.0 - share - sign * _STANDARD_ERRORS * error)) for sign in (1, -1)]
    ends = [step_with_cheaper_batches(a.workers, each, waiting=each) for each in left]
    best, worst = (end[n] if end else step for n, end in enumerate(ends))
    line = call.line
    return Finding(
        rule=RULE.id,
        title=f"{call.name} does the same work again for every item",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=min(lost_to_input(a), step - best),
        evidence=(
            Evidence.of(
                LOADER_REPEATED_SHARE,
                share,
                t["repeated"],
                f"of the time of making items, ± {error:.2f}: {line.seen} of {line.looks} stacks at {line.words}; "
                "its arguments are the same for every item",
                form="continues",
            ),
            input_evidence(a, wait, t["input_wait"]),
        ),
        fixes=(
            Fix(
                f"call {call.name} once in each worker, and keep what it returns",
                "if self.kept is None: self.kept = ...  # at a worker's first item, not in __init__: forked workers would share it",
                Where(line.file, line.line),
                "small change",
            ),
        ),
        saving=model_of(a).saving(
            model_of(a).at_best(best), worst, "this run's batches without the time in this call, simulated"
        ),
        circumstances=frozenset({"better than workers"} if better_than_workers(a, worst) else ()),
    )


RULE = rule(
    __name__,
    "every item opens the same anew",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "repeated": Threshold(
            0.30, "of the samples: less than that hardly shortens a step that also waits for the rest of the item"
        ),
    },
)
