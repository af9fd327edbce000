"""Data loading: slow sampler.

What it does: finds training that waits for the sampler at each fetch: for the indices of the next batch, not for its
samples.

Fires when: the sampler takes ≥ 5 % of the step in the training thread.

Why it is slow: a sampler runs in the training thread, once per batch, no matter which process makes the batch. A
sampler that calls `np.random.choice(p=...)`, sorts, or asks a server for each index takes milliseconds of every step,
and more workers do not share this work.

Evidence: the time per step spent drawing indices, from the steps in which the sampler was timed; the line of the job's own sampler, by
stack samples.

Fix: draw the order of a whole epoch at once and iterate over it (`WeightedRandomSampler`, `torch.multinomial`,
`random.choices`). If each step creates a new iterator (`next(iter(loader))`), each one draws a whole order for a single
batch: keep the iterator.

Estimate: the step without that time at best, with half of it at worst.

False alarms: a sampler that draws its order when an epoch begins: that is not part of a usual fetch (DAT014).
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix
from rn50_advisor.advisor.model.measures.step_measures import STEP_INDEX_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of, sampler_of, step_without, training_loader
from rn50_advisor.rules.data_loading.epoch_starts import epoch_in_every_step, one_iterator_fix
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_DRAWING_LEFT_WORST = 0.5


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    drawn, step, model = a.by_rank(STEP_INDEX_S), a.value(STEP_TIME_S), model_of(a)
    took = common(drawn)
    level = severity(took / step)
    if took < t["index"] * step or level is None:
        return Clear(RULE.id)
    best, worst = (
        step_without(a, "input_wait", {r: share * s for r, s in drawn.items()}) for share in (1.0, _DRAWING_LEFT_WORST)
    )
    note = f"{100 * took / step:.0f} % of a {duration(step)} step, in the training thread"
    return Finding(
        rule=RULE.id,
        title="Data loading: slow sampler in the training process",
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=took,
        evidence=(Evidence.of(STEP_INDEX_S, took, t["index"] * step, note),),
        fixes=(_fix(a, training_loader(a, drawn)),),
        saving=model.saving(model.at_best(best), worst, "no time for drawing indices, or half of it"),
    )


def _fix(a: Analysis, loader: LoaderFacts | None) -> Fix:
    if loader is not None and epoch_in_every_step(a):
        return one_iterator_fix(loader)
    change = (
        "WeightedRandomSampler, torch.multinomial or np.random.choice(..., size=n) once an epoch, not for each index"
    )
    return Fix("draw the sampling order of an epoch at once", change, sampler_of(a, loader), "small change")


RULE = rule(
    __name__,
    "Data loading: slow sampler",
    check,
    needs=(STEP_TIME_S, STEP_INDEX_S),
    thresholds={"index": Threshold(0.05, "severity 'medium' begins at 5 % of the step")},
)
