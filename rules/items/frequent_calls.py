"""Shared by the rules on calls in which stack samples found processes that make items: what the step would take without them."""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall
from rn50_advisor.advisor.model.measures.measure import JobMeasure
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import (
    better_than_workers,
    common,
    crowding_evidence,
    lost_to_input,
    model_of,
)
from rn50_advisor.rules.data_loading.input_starvation import input_evidence, input_waits
from rn50_advisor.rules.data_loading.preprocessing import CROWDED, crowd_s, steps_without
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, severity

_STANDARD_ERRORS = 1.64  # a confidence of 90 %
# Share of the rest of the step that goes at best with what is spared of the step, since nothing empties the caches any more. Measured where
# 0.5 of the step went, for weights of 24 MB: forward and backward pass took 0.55 of their time beside loading in the training process, 0.53
# beside two workers.
_WARM = 0.5
FREQUENT = {
    **CROWDED,
    "share": Threshold(
        0.30, "of the samples: less than that hardly shortens a step that also waits for the rest of the item"
    ),
}


def finding_of(
    a: Analysis,
    t: Thresholds,
    rule: str,
    call: FrequentCall | None,
    *,
    measures: tuple[JobMeasure, JobMeasure],
    title: str,
    where: str,
    fix: tuple[str, str],
    basis: str,
    left: float = 0.0,
    left_best: float = 0.0,
) -> Finding | Clear | NotMeasured:
    """The finding that items spend their time in this call. `measures`: its share of stack samples, and the standard error.
    `left`, `left_best`: shares of that time that are left at worst and at best.
    """
    waits, step = input_waits(a), a.value(STEP_TIME_S)
    wait, share, error = common(waits), a.get(measures[0]), a.get(measures[1]) or 0.0
    crowd = crowd_s(a, t["workers_share"])
    waited, crowded = wait >= t["input_wait"] * step, crowd >= t["crowding"] * step
    level = severity((wait + crowd if crowded else wait) / step)
    if not (waited or crowded) or level is None or a.workers is None:
        return Clear(rule)
    if share is None:  # stacks are sampled only while the loop waits for input, or workers take its cores
        return NotMeasured(rule, (measures[0],))
    if share < t["share"] or call is None:
        return Clear(rule)
    gone = (
        (1.0 - left_best) * min(1.0, share + _STANDARD_ERRORS * error),
        (1.0 - left) * max(0.0, share - _STANDARD_ERRORS * error),
    )
    best, worst = steps_without(a, t, a.workers, gone, waited=waited, crowded=crowded)
    if not crowded:
        best -= _WARM * max(0.0, step - wait) * (1.0 - best / step)
    line = call.line
    seen = f"{where}: {line.seen} of {line.looks} stacks at {line.words}"
    return Finding(
        rule=rule,
        title=title,
        severity=level,
        confidence=confidence(a),
        seconds_per_step=min(lost_to_input(a) + (crowd if crowded else 0.0), step - best),
        evidence=(
            Evidence.of(
                measures[0],
                share,
                t["share"],
                f"of item preparation time (± {100 * error:.0f} %), {seen}",
                form="explains",
            ),
            input_evidence(a, wait, t["input_wait"]) if waited else crowding_evidence(step, crowd, t["crowding"]),
        ),
        fixes=(Fix(*fix, Where(line.file, line.line), "small change"),),
        saving=model_of(a).saving(best, worst, basis),
        # the middle of the estimate, since few stacks make its worst case bad; and it takes no cores, as workers do
        circumstances=frozenset({"better than workers"} if better_than_workers(a, math.sqrt(best * worst)) else ()),
    )
