"""Compute in hooks.

What it does: finds hooks of modules or gradients that watch the training (histograms, norms, statistics of activations) in every step,
and hooks of modules, tensors and optimizers, or handlers of a logger, that a loop registers again and again, so that each runs more often
in every step.

Fires when: the training thread spends ≥ 8 % of the step in hooks that only watch; or the same function is registered again on the same
objects throughout the run, and the phase in which it runs grows with the number of hooks, by ≥ 5 % of the step in the mean.

Why it is slow: a hook runs in the middle of the forward or backward pass, once for each layer or parameter, and the pass waits for it.
On a GPU its numbers have to come back to the host before the next kernel is launched. A hook that is registered in each step and never
removed runs as often as there were steps, and keeps what it refers to in memory.

Evidence: a profile of the training thread's stacks: functions of the user's that torch calls as hooks. Their source returns nothing and
writes nothing in place. On a GPU at most the time in which it had nothing queued. Hooks that pile up are counted at growing intervals on
the trained modules, their parameters and optimizers, whatever they return.

Fix: do it in every hundredth step: `if step % 100 == 0:` in the hook, or the logging interval of the tool that registers it. Hooks that
pile up: register them once, before the loop, or call `remove()` on the handle at the step's end. The line is that of the call.

Estimate: at best the step without these hooks, at worst a quarter of their time remains. Of hooks that pile up: the growth of their phase
with each hook, between stretches of the run, times those that were too many in the mean, without the first fifth of the run; a longer run
gains more.

False alarms: below 8 % of the step the rule stays silent. Hooks that return a value, or change gradients or data in place, are part of
the training. What a hook collects may be part of the loss: then it has to run in every step. One hook on each module is no pile, however
many modules there are.
"""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis, HookPile
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import STEP_HOOKS_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted, duration
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.loop.own_code import OwnCode, finding_of, own_code, saving_without
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_PHASES = ("backward", "forward")
_LEFT_WORST = 0.25  # of these hooks, at worst


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if (piled := _piled(a, t)) is not None:
        return piled
    if not a.by_rank(STEP_HOOKS_S):
        return NotMeasured(RULE.id, (STEP_HOOKS_S,))
    doing, lines = "computes in hooks that only watch", a.hook_lines
    found = own_code(RULE.id, a, STEP_HOOKS_S, lines, least=t["watching"], doing=doing, phases=_PHASES)
    if not isinstance(found, OwnCode):
        return found
    finding = finding_of(
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
    again = next((hooks for hooks in a.piled_hooks if hooks.function == lines[0].function), None)
    return finding if again is None else replace(finding, fixes=(_registered_once(again), *finding.fixes))


def _piled(a: Analysis, t: Thresholds) -> Finding | None:
    """The finding on hooks that pile up; None if there are none, or their growth does not show in the step."""
    if not a.piled_hooks:
        return None
    model, step, first = model_of(a), a.value(STEP_TIME_S), a.piled_hooks[0]
    worst_s, best_s = (
        model.step_if({(h.rank, h.phase): model.own[h.rank][h.phase] - h.lost_s[case] for h in a.piled_hooks})
        for case in (0, 1)
    )
    lost = step - (best_s + worst_s) / 2
    level = severity(lost / step)
    if lost < t["piled"] * step or level is None:
        return None
    whose = {hooks.rank for hooks in a.piled_hooks}
    ranks = tuple(sorted(whose)) if len(whose) < len(model.own) else ()
    growth = f"of a {duration(step)} step, more with each of the {first.count:,} hooks that are registered once more"
    return Finding(
        rule=RULE.id,
        title=f"{'Log handlers' if _handles(first) else 'Hooks'} pile up: {_name(first)} is registered again {_how_often(first)}",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        scope=Affected(ranks=ranks),
        evidence=(
            Evidence(first.phase, sum(first.lost_s) / 2, "s", t["piled"] * step, growth, "continues"),
            Evidence(
                "hooks",
                float(first.count),
                "",
                None,
                f"of {_name(first)} ({first.function_at}) beyond the first on each object, {first.added:,} added within "
                f"{counted(first.steps, 'step')}",
            ),
        ),
        fixes=(_registered_once(first),),
        saving=model.saving(model.at_best(best_s), worst_s, "each hook once"),
    )


def _registered_once(hooks: HookPile) -> Fix:
    place = "" if hooks.registered else f", where {hooks.kind} is called"
    remove = (
        f"keep the handle and call its remove() at the end of the step: handle = ….{hooks.kind}(…); …; handle.remove()"
    )
    if _handles(hooks):
        remove = "if not logger.handlers: before it; each of them writes every message once more"
    return Fix(
        f"register {_name(hooks)} once, before the loop{place}",
        f"or {remove}",
        Where(hooks.file, hooks.line),
        "one line",
    )


def _handles(hooks: HookPile) -> bool:
    return hooks.kind == "addHandler"


def _name(hooks: HookPile) -> str:
    if _handles(hooks):
        return hooks.function.removesuffix(".emit")
    return hooks.function.removeprefix("<locals>.").rpartition("<locals>.")[2] or hooks.function


def _how_often(hooks: HookPile) -> str:
    return "in each step" if hooks.added >= hooks.steps else "during the run"


RULE = rule(
    __name__,
    "Compute in hooks",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "watching": Threshold(0.08, "of the step: norms for a log line take a few per cent"),
        "piled": Threshold(0.05, "of the step, by the middle of the estimate: severity 'medium' begins at 5 %"),
    },
)
