"""Prefix computed again in every iteration.

What it does: finds loops that hand a model the whole sequence so far in each iteration and then make it longer: decoding or sampling
without a cache of what was computed before.

Fires when: these calls take ≥ 6 % of the step, and the source shows the loop.

Why it is slow: n iterations compute n (n + 1) / 2 positions, of which n are new. A recurrent layer goes through all time steps again, and
attention computes the keys and values of all positions again.

Evidence: stack samples below the call; the source, in which the same loop makes the argument longer.

Fix: hand on the last position and the state: `out, state = self.gru(last, state)`; with transformers `model(last, past_key_values=past,
use_cache=True)`, or `generate`, which does so by itself.

Estimate: what was left of such loops, both forms in turns in one process; the share of the loop is uncertain by one and a half standard
errors of the samples.

False alarms: a loop that trains in each iteration is none, nor one that hands on the last position alone, nor one layer after another with
what all before have made (dense networks), nor a memory that other calls fill. Layers that look ahead
(bidirectional ones) have no such state; what a window of the last positions gives changes if it slides.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_PREFIX_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PHASES = ("forward", "gap")
# Of the calls, at best and at worst. GRUs of one to three layers, 20 to 100 iterations: 0.04 to 0.14 of their time was left with the state
# kept. LSTMs, which torch computes in one operation, 0.16 and 0.17, and 0.56 in 20 iterations; GPT-2 0.13 to 0.17, and 0.69 in 20.
_LEFT = (0.05, 0.5)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    doing, lines = "computes the same positions again", a.prefix_lines
    found = own_code(RULE.id, a, STEP_PREFIX_S, lines, least=t["computing"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    return finding_of(
        RULE.id,
        a,
        found,
        f"Prefix computed again in every iteration: {lines[0].function}",
        fix=Fix(
            "hand on the last position and the state so far",
            "out, state = self.gru(last, state) for a recurrent layer; model(last, past_key_values=past, use_cache=True) or generate() "
            "with transformers; a cache of keys and values in attention of your own",
            found.where,
            "small change",
        ),
        saving=saving_without(
            a, found, "each position computed once", left=_LEFT[1], phases=_PHASES, times=1.0 - _LEFT[0]
        ),
    )


RULE = rule(
    __name__,
    "Prefix computed again in every iteration",
    check,
    needs=(STEP_TIME_S, STEP_PREFIX_S),
    thresholds={"computing": Threshold(0.06, "of the step: severity 'medium' begins at 5 %, and few samples scatter")},
)
