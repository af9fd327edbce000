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

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.rules.analysis_reading import batches_made, model_of
from rn50_advisor.rules.data_loading.worker_supply import HARDLY
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, step_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_LEFT = 0.25  # of it, at worst
_ROOM = 1.15  # more than workers need on average: batches do not all take as long


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    found = own_code(
        RULE.id, a, "step.preparing_s", a.preparing_lines, least=t["preparing"], between="the batch and the model"
    )
    if not isinstance(found, OwnCode):
        return found
    model = model_of(a)
    best, worst = (
        max(step_without(a, found.seconds, part), model.cpu_floor_s())
        for part in (1.0 + found.error, 1.0 - max(_LEFT, found.error))
    )
    fix, saving = _to_workers(a, found, best), model.saving(model.at_best(best), worst, "as workers make it ready")
    if saving.speedup[1] < HARDLY:
        fix, free = _cheaper(found), model.step_s - found.lost_s
        saving = model.saving(free, model.step_s, "at best were it to cost nothing: no core is left for workers")
    title = "The loop prepares its batches itself, while the model waits"
    return finding_of(RULE.id, a, found, title, fix=fix, saving=saving)


def _to_workers(a: Analysis, found: OwnCode, step_s: float) -> Fix:
    made, walls = batches_made(a), a.by_rank("fetch.wall_s")
    work_s = max(s + made.get(rank, 1.0) * walls.get(rank, 0.0) for rank, s in found.seconds.items())
    workers = max(1, math.ceil(_ROOM * work_s / max(step_s, 1e-9)))
    return Fix(
        "let loader workers do ahead what this line does",
        f"in the data set's __getitem__ or in collate_fn, with {counted(workers, 'worker')} or more (num_workers={workers})",
        found.where,
        "small change",
    )


def _cheaper(found: OwnCode) -> Fix:
    return Fix(
        "make this line cheaper: workers would take the cores that computing needs",
        "on whole batches instead of one sample after the other, or once before training",
        found.where,
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
