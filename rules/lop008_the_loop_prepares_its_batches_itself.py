"""The loop prepares its batches itself.

What it does: finds loops that compute something between fetching a batch and calling the model: augmentation, mixing, tokenising,
normalising, labels made by hand.

Why it is slow: it is done in the training thread, so the model waits for it in each step, and a GPU has nothing queued meanwhile. Loader
workers would do it for the next batches while this one is trained on.

Evidence: a profile of the training thread's stacks: the share of the looks that stood in the script's own lines after the fetch and before
the first line that calls the model. On a GPU no more counts than it had nothing queued.

Fix: let the data set or `collate_fn` do it, with as many workers as that takes; on a GPU it may also be done there, on whole batches.

Estimate: the step without it, as far as the cores carry the same work beside the training. The looks scatter: by one and a half standard
errors of their number, and at worst a quarter of it stays.

False alarms: below 5 % of the step nothing is said. What stands in the model's own forward, or in one line with its call, is the model's;
what waits is LOP007; and copies to the GPU are H2D001 and H2D002. Loops without a DataLoader make their data themselves on purpose.
"""

from __future__ import annotations

import math

from advisor.core.analysis import Analysis, HotLine
from advisor.core.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from advisor.core.format import counted
from advisor.core.pace import long_forward
from rules.gaps import on_ranks
from rules.reading import batches_made, model_of
from rules.rule import Threshold, Thresholds, confidence, rule, severity
from rules.staffing import HARDLY
from rules.stragglers import slows_the_wire

_LEFT = 0.25  # of it, at worst
_ERRORS = 1.5  # standard errors of the looks
_LOOKS_MIN = 10  # at the line: of fewer it is not known well enough to be named
_ROOM = 1.15  # more than workers need on average: batches do not all take as long


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    step, spent, model = a.value("step.time_s"), a.by_rank("step.preparing_s"), model_of(a)
    whose = tuple(rank for rank, s in spent.items() if s >= t["preparing"] * step)
    line = next((line for line in a.preparing_lines if line.samples >= _LOOKS_MIN), None)
    if not whose or line is None:
        return NotMeasured(RULE.id, ("step.preparing_s",)) if _unseen(a, t) else Clear(RULE.id)
    error = _ERRORS / math.sqrt(sum(line.samples for line in a.preparing_lines))
    free = _step_without(a, spent, 1.0)
    level = severity((step - free) / step)
    if step - free < t["preparing"] * step or level is None:
        return Clear(RULE.id)
    best, worst = (_step_without(a, spent, part) for part in (1.0 + error, 1.0 - max(_LEFT, error)))
    best, worst = (max(after, model.cpu_floor_s()) for after in (best, worst))
    fix, saving = (
        _to_workers(a, spent, line, best),
        model.saving(model.at_best(best), worst, "as workers make it ready"),
    )
    if saving.speedup[1] < HARDLY:
        fix = _cheaper(line)
        saving = model.saving(free, step, "at best were it to cost nothing: no core is left for workers")
    affected = whose if len(whose) < len(model.own) else ()
    most = max(whose, key=lambda rank: spent[rank])
    return Finding(
        rule=RULE.id,
        title="The loop prepares its batches itself, while the model waits" + on_ranks(affected),
        severity=level,
        confidence=confidence(a),
        seconds_per_step=step - free,
        explains=slows_the_wire(a, step - free),
        scope=Affected(ranks=affected),
        evidence=(
            Evidence(
                "step.preparing_s",
                spent[most],
                "s",
                t["preparing"] * step,
                f"of a {1000 * step:.3g} ms step rank {most} computes between the batch and the model",
            ),
            Evidence("stack samples", float(line.samples), "", None, _place(line)),
        ),
        fixes=(fix,),
        saving=saving,
    )


def _unseen(a: Analysis, t: Thresholds) -> bool:
    """A rank that a loader feeds has a long forward pass, and nobody saw what is in it."""
    own, seen = model_of(a).own, a.by_rank("step.preparing_s")
    return any(
        rank not in seen
        and long_forward(own[rank]["forward"], own[rank]["backward"]) >= t["preparing"] * a.value("step.time_s")
        for rank in a.by_rank("loader.workers")
        if rank in own
    )


def _step_without(a: Analysis, spent: dict[int, float], part: float) -> float:
    """The step with that part of it taken from the forward passes."""
    model = model_of(a)
    return model.step_if(
        {(rank, "forward"): max(0.0, model.own[rank]["forward"] - part * s) for rank, s in spent.items()}
    )


def _place(line: HotLine) -> str:
    return f"{line.file}:{line.line} in {line.function}" + (f", in {line.leaf}" if line.leaf else "")


def _to_workers(a: Analysis, spent: dict[int, float], line: HotLine, step_s: float) -> Fix:
    made, walls = batches_made(a), a.by_rank("fetch.wall_s")
    work_s = max(s + made.get(rank, 1.0) * walls.get(rank, 0.0) for rank, s in spent.items())
    workers = max(1, math.ceil(_ROOM * work_s / max(step_s, 1e-9)))
    return Fix(
        "let loader workers do ahead what this line does",
        f"in the data set's __getitem__ or in collate_fn, with {counted(workers, 'worker')} or more (num_workers={workers})",
        Where(line.file, line.line),
        "small change",
    )


def _cheaper(line: HotLine) -> Fix:
    return Fix(
        "make this line cheaper: workers would take the cores that computing needs",
        "on whole batches instead of one sample after the other, or once before training",
        Where(line.file, line.line),
        "small change",
    )


RULE = rule(
    __name__,
    "the loop prepares its batches itself",
    check,
    needs=("step.time_s",),
    explains=("CMP003", "CMP007", "COM002"),
    thresholds={"preparing": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
