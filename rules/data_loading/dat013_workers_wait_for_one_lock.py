"""Data loading: lock contention between workers.

What it does: finds training that waits for input while the loader workers wait for one another: at a lock that only one
of them can hold (`multiprocessing.Lock`, `flock`, `filelock`), or for the single process that serves them all
(`multiprocessing.Manager`).

Fires when: input wait is ≥ 5 %, and in ≥ 30 % of the stack samples a worker waits for a lock or server that all share.

Why it is slow: the workers make their samples one after the other, as a single worker would. More workers only lengthen
the queue.

Evidence: the input wait as a share of the step; the share of the workers' stack samples that show a wait at that lock
or server, with its standard error; the user's line.

Fix: a file, a connection or a copy for each worker instead of a shared one, so that no lock is needed; or as little
work as possible under the lock. Instead of a manager's dictionary or list, use an array, which workers share without
asking another process.

Estimate: this run's loader simulated with batches that do not wait for the lock. The wait is the share of stack
samples, plus or minus its error, and at most the time in which all workers but one can wait.

False alarms: a thread lock belongs to one worker and is not counted. A lock that is held only briefly is seldom
sampled. The resource under the lock may be no faster by itself: a slow disk shows up in DAT002, which is listed under
this finding until the lock is gone.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.forecast.worker_model import LOCK_TAKEN, step_without_lock
from rn50_advisor.advisor.model.input.sample_cost import SharedLock
from rn50_advisor.advisor.model.measures.input_measures import (
    FETCH_WALL_S,
    LOADER_LOCK_ERROR,
    LOADER_LOCK_SHARE,
    LOADER_WORKERS,
)
from rn50_advisor.advisor.model.measures.step_measures import STEP_INPUT_WAIT_S, STEP_TIME_S
from rn50_advisor.rules.analysis_reading import common, lost_to_input, mean, model_of, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_STANDARD_ERRORS = 1.64  # a confidence of 90 %
_WAITED_FOR = {"lock": "a shared lock", "server": "a shared server process"}
_CHANGES = {
    "lock": "open the file or the connection in each worker (worker_init_fn, or at the first __getitem__) and drop the lock; "
    "or hold it only for what must not run concurrently",
    "server": "an array that all workers read (numpy.memmap, a torch tensor after share_memory_()) instead of a Manager's proxy",
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    waits, step, workers = input_waits(a), a.value(STEP_TIME_S), a.by_rank(LOADER_WORKERS)
    wait, share, error = common(waits), a.get(LOADER_LOCK_SHARE), a.get(LOADER_LOCK_ERROR) or 0.0
    level, lock = severity(wait / step), a.lock or SharedLock("lock")
    if wait < t["input_wait"] * step or level is None or max(workers.values()) < 1 or a.workers is None:
        return Clear(RULE.id)
    if share is None:  # stacks are sampled only while the loop waits for input
        return NotMeasured(RULE.id, (LOADER_LOCK_SHARE,))
    if share < t["waiting"]:
        return Clear(RULE.id)
    most = 1.0 - 1.0 / max(2.0, sum(workers.values()))  # one of them holds it
    ends = [step_without_lock(a.workers, min(most, share + sign * _STANDARD_ERRORS * error)) for sign in (1, -1)]
    freed, partly = (end or (step, step) for end in ends)
    loader, line = training_loader(a, waits), lock.line
    return Finding(
        rule=RULE.id,
        title=f"Data loading: {mean(workers):.0f} workers wait for {_WAITED_FOR[lock.kind]}",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            Evidence.of(LOADER_LOCK_SHARE, share, t["waiting"], _share_note(lock, error), form="explains"),
            input_evidence(a, wait, t["input_wait"]),
        ),
        fixes=(
            Fix(
                "remove the shared lock" if lock.kind == "lock" else "remove the shared process",
                _CHANGES[lock.kind],
                Where(line.file, line.line) if line else where_of(loader),
                "small change",
            ),
        ),
        saving=model_of(a).saving(
            model_of(a).at_best(freed[0]),
            partly[1],
            "this run's batches simulated without the wait",
        ),
    )


def _share_note(lock: SharedLock, error: float) -> str:
    where = f", {lock.line.seen} of {lock.line.looks} stacks at {lock.line.words}" if lock.line else ""
    return f"of the workers' stack samples (± {100 * error:.0f} %){where}"


RULE = rule(
    __name__,
    "Data loading: lock contention between workers",
    check,
    needs=(STEP_TIME_S, STEP_INPUT_WAIT_S, FETCH_WALL_S, LOADER_WORKERS),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "waiting": Threshold(
            LOCK_TAKEN,
            "of the samples: a lock taken this often is always busy; one that is idle half of the time shows up in a tenth",
        ),
    },
)
