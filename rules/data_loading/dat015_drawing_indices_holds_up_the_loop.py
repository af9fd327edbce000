"""Drawing indices holds up the loop.

What it does: finds training that waits at each fetch for the sampler: for which samples the next batch is made of, not for the samples.

Why it is slow: a sampler runs in the training thread, for one batch at each fetch, whoever makes the batch. One that calls
`np.random.choice(p=...)`, sorts, or asks a server for each index takes milliseconds of every step, and no number of workers shares them.

Evidence: what drawing the indices took in steps whose clocks were read, per step.

Fix: draw the order of a whole epoch in one go and hand it out (`WeightedRandomSampler`, `torch.multinomial`, `random.choices`). Where each
step takes a new iterator (`next(iter(loader))`), each draws a whole order for one batch: keep the iterator.

Estimate: the step without that time at best, with half of it at worst.

False alarms: a sampler that makes its order when an epoch begins: that is no part of a usual fetch (DAT014).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.rules.analysis_reading import common, model_of, step_without, training_loader, where_of
from rn50_advisor.rules.data_loading.epoch_starts import begin_once, every_step_begins
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_HALF = 0.5


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    drawn, step, model = a.by_rank("step.index_s"), a.value("step.time_s"), model_of(a)
    took = common(drawn)
    level = severity(took / step)
    if took < t["index"] * step or level is None:
        return Clear(RULE.id)
    best, worst = (step_without(a, "input_wait", {r: share * s for r, s in drawn.items()}) for share in (1.0, _HALF))
    note = f"{100 * took / step:.0f} % of a {1000 * step:.0f} ms step, in the training thread"
    return Finding(
        rule=RULE.id,
        title="The loop waits while the indices of a batch are drawn",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=took,
        evidence=(Evidence("step.index_s", took, "s", t["index"] * step, note),),
        fixes=(_fix(a, training_loader(a, drawn)),),
        saving=model.saving(model.at_best(best), worst, "indices that are drawn in no time, or in half of it"),
    )


def _fix(a: Analysis, loader: LoaderFacts | None) -> Fix:
    if loader is not None and every_step_begins(a):
        return begin_once(loader)
    change = (
        "WeightedRandomSampler, torch.multinomial or np.random.choice(..., size=n) once an epoch, not for each index"
    )
    return Fix("let the sampler draw the order of an epoch in one go", change, where_of(loader), "small change")


RULE = rule(
    __name__,
    "drawing indices holds up the loop",
    check,
    needs=("step.time_s", "step.index_s"),
    explains=("COM002",),
    thresholds={"index": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
