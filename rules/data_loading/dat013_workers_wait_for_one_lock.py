"""Workers wait for one lock.

What it does: finds training that waits for input while the loader's workers wait for one another: at a lock that only one of them can hold
(`multiprocessing.Lock`, `flock`, `filelock`), or for the one process that serves them all (`multiprocessing.Manager`).

Why it is slow: they make their samples one after the other, as a single worker would. More workers make the line longer, nothing else.

Evidence: waiting for input as a share of the step; the share of the looks at workers' stacks that found one waiting in that line, with its
standard error; the user's line.

Fix: a file, a connection or a copy for each worker instead of one for all, so that no lock is needed; or as little as possible under it. A
manager's dictionary or list: an array, which workers share without asking anybody.

Estimate: the loader of this run played through with batches that do not wait for the lock: the share of the looks, give or take its error,
and no more of the time than all workers but one can wait.

False alarms: a lock of threads is each worker's own, and not counted. A lock that is held for a moment is seldom found taken. What the lock
protects may itself be no faster: a disk shows in DAT002, which stands under this until the lock is gone.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.forecast.worker_model import LOCK_TAKEN, step_without_lock
from rn50_advisor.advisor.model.input.sample_cost import SharedLock
from rn50_advisor.rules.analysis_reading import common, lost_to_input, mean, model_of, training_loader, where_of
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_TWO_SIDED = 1.64  # standard errors: nine of ten
_WHAT = {"lock": "a lock that one of them holds at a time", "server": "the one process that serves them all"}
_CHANGE = {
    "lock": "open the file or the connection in each worker (worker_init_fn, or at the first __getitem__) and drop the lock; "
    "or hold it only for what must not be done twice at once",
    "server": "an array that all workers read (numpy.memmap, a torch tensor after share_memory_()) instead of a Manager's proxy",
}


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    waits, step, workers = input_waits(a), a.value("step.time_s"), a.by_rank("loader.workers")
    wait, share, error = common(waits), a.get("loader.lock_share"), a.get("loader.lock_error") or 0.0
    level, lock = severity(wait / step), a.lock or SharedLock("lock")
    if wait < t["input_wait"] * step or level is None or max(workers.values()) < 1 or a.workers is None:
        return Clear(RULE.id)
    if share is None:  # nobody is looked at where input is not waited for
        return NotMeasured(RULE.id, ("loader.lock_share",))
    if share < t["waiting"]:
        return Clear(RULE.id)
    most = 1.0 - 1.0 / max(2.0, sum(workers.values()))  # one of them holds it
    ends = [step_without_lock(a.workers, min(most, share + sign * _TWO_SIDED * error)) for sign in (1, -1)]
    freed, partly = (end or (step, step) for end in ends)
    loader, line = training_loader(a, waits), lock.line
    return Finding(
        rule=RULE.id,
        title=f"{mean(workers):.0f} loader workers take turns at {_WHAT[lock.kind]}",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost_to_input(a),
        evidence=(
            Evidence("loader.lock_share", share, "", t["waiting"], _seen(lock, error)),
            input_evidence(a, wait, t["input_wait"]),
        ),
        fixes=(
            Fix(
                "let each worker work without the others" if lock.kind == "lock" else "do without that process",
                _CHANGE[lock.kind],
                Where(line.file, line.line) if line else where_of(loader),
                "small change",
            ),
        ),
        saving=model_of(a).saving(
            model_of(a).at_best(freed[0]),
            partly[1],
            "this run's batches without waiting for each other, played through",
        ),
    )


def _seen(lock: SharedLock, error: float) -> str:
    where = f", {lock.line.seen} of {lock.line.looks} looks at {lock.line.words}" if lock.line else ""
    return f"of the looks at workers' stacks, ± {error:.2f}{where}"


RULE = rule(
    __name__,
    "workers wait for one lock",
    check,
    needs=("step.time_s", "step.input_wait_s", "fetch.wall_s", "loader.workers"),
    explains=("DAT001", "DAT002", "DAT008", "DAT009", "COM002"),
    thresholds={
        "input_wait": Threshold(0.05, "severity 'medium' begins at 5 % of the step"),
        "waiting": Threshold(
            LOCK_TAKEN, "found taken so often, a lock has no rest; one that half idles is found so one time in ten"
        ),
    },
)
