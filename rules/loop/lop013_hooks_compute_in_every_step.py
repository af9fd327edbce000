"""Compute in hooks.

What it does: finds hooks of modules or gradients that watch the training (histograms, norms, statistics of activations) in every step.

Fires when: the training thread spends ≥ 8 % of the step in such hooks.

Why it is slow: a hook runs in the middle of the forward or backward pass, once for each layer or parameter, and the pass waits for it.
On a GPU its numbers have to come back to the host before the next kernel is launched.

Evidence: a profile of the training thread's stacks: functions of the user's that torch calls as hooks. Their source returns nothing and
writes nothing in place. On a GPU at most the time in which it had nothing queued.

Fix: do it in every hundredth step: `if step % 100 == 0:` in the hook, or the logging interval of the tool that registers it.

Estimate: at best the step without these hooks, at worst a quarter of their time remains.

False alarms: below 8 % of the step the rule stays silent. Hooks that return a value, or change gradients or data in place, are part of
the training. What a hook collects may be part of the loss: then it has to run in every step.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.measures.step_measures import STEP_HOOKS_S, STEP_TIME_S
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_PHASES = ("backward", "forward")
_LEFT_WORST = 0.25  # of these hooks, at worst


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    doing, lines = "computes in hooks that only watch", a.hook_lines
    found = own_code(RULE.id, a, STEP_HOOKS_S, lines, least=t["watching"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    return finding_of(
        RULE.id,
        a,
        found,
        f"Compute in hooks in every step: {lines[0].function}",
        fix=Fix(
            "let the hook work in every hundredth step",
            "if step % 100 == 0: in the hook, or the logging interval of what registers it, unless the loss uses what it collects",
            found.where,
            "one line",
        ),
        saving=saving_without(a, found, "none of it, or a quarter of it", left=_LEFT_WORST, phases=_PHASES),
    )


RULE = rule(
    __name__,
    "Compute in hooks",
    check,
    needs=(STEP_TIME_S, STEP_HOOKS_S),
    thresholds={"watching": Threshold(0.08, "of the step: norms for a log line take a few per cent")},
)
