"""Start-up is long.

What it does: finds runs that take two minutes or more until training is under way, or a tenth of a run of ten minutes and more.

Why it is slow: nothing is trained while Python imports, folders are walked for the data's index, ranks find each
other, workers start and the first step compiles. A job that is started again after each preemption pays for it each
time, on every GPU it holds.

Evidence: the time from the start of the job until its first step was done, a usual step taken off; how it divides
into what came before the first fetch, the first fetch, batches that were fetched and thrown away to go on in the
middle of an epoch, and the first step's own excess.

Fix: for what is large of these. Before the first fetch: keep the index of the data in a file instead of walking
folders at each start, load weights once and from a local disk. First fetch: fewer workers, or a data set that is
cheap to hand to them. Thrown away: a sampler that begins where the checkpoint was written. First step: a cache for
compiled code that outlives the job (`TORCHINDUCTOR_CACHE_DIR` on a disk that stays), `cudnn.benchmark` off where
shapes change.

Estimate: none. How much shorter it becomes is known only by trying, and a step is not faster by it.

False alarms: short runs, where any start-up is a large share: below ten minutes only the two minutes count, and so
while a job still runs. An evaluation or a restored checkpoint before the first step is part of it, wanted or not.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

# Value, what it is, and what to do where it is the largest part.
_PARTS = (
    (
        "start.before_s",
        "before the first fetch: imports, the data's index, the model, ranks that wait for each other",
        Fix(
            "make what comes before the first batch cheaper",
            "keep the list of files and labels in a file instead of walking folders at each start; load weights from a local disk",
            None,
            "small change",
        ),
    ),
    (
        "start.fetch_s",
        "first fetch, beyond a usual one: workers start, the order of samples is made",
        Fix(
            "make the first fetch cheaper",
            "a data set of arrays instead of many Python objects is handed to workers faster; fewer workers start sooner",
            None,
            "small change",
        ),
    ),
    (
        "start.skipped_s",
        "batches that were fetched before the first that trained, and thrown away as far as was seen",
        Fix(
            "begin the sampler where training goes on, not the loop",
            "torchdata.stateful_dataloader.StatefulDataLoader and its state_dict(), or a Subset of the indices that are left",
            None,
            "small change",
        ),
    ),
    (
        "start.first_step_s",
        "first step, beyond a usual one: compilation, autotuning, first allocations",
        Fix(
            "keep what the first step makes",
            "TORCHINDUCTOR_CACHE_DIR=/a/disk/that/stays for torch.compile; fixed shapes, or torch.backends.cudnn.benchmark = False",
            None,
            "one line",
        ),
    ),
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    total, run = a.value("start.total_s"), a.value("run.duration_s")
    over = not a.running and run >= t["run"]
    if total < t["seconds"] and not (over and total >= t["share"] * run):
        return Clear(RULE.id)
    parts = sorted(_PARTS, key=lambda part: -(a.get(part[0]) or 0.0))
    evidence = [
        Evidence(
            "start.total_s",
            total,
            "s",
            t["seconds"] if total >= t["seconds"] else t["share"] * run,
            f"{100 * total / max(run, total):.0f} % of {duration(run)}" + (" so far" if a.running else ""),
        )
    ]
    evidence += [Evidence(name, a.get(name), "s", None, words) for name, words, _ in parts if a.get(name) is not None]
    return Finding(
        rule=RULE.id,
        title=f"Training is under way only after {duration(total)}",
        severity="low",
        confidence=0.9,
        seconds_per_step=0.0,
        evidence=tuple(evidence),
        fixes=(parts[0][2],),
    )


RULE = rule(
    __name__,
    "start-up is long",
    check,
    needs=("start.total_s", "run.duration_s"),
    thresholds={
        "seconds": Threshold(120.0, "what people wait for without looking elsewhere; more is paid at every restart"),
        "share": Threshold(
            0.10, "twice the share from which on a loss is of medium severity: it comes once, not in each step"
        ),
        "run": Threshold(600.0, "a shorter run is a trial, and most of a trial is its start"),
    },
    steady_steps=0,
)
