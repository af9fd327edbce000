"""Repeated recompilation by torch.compile.

What it does: finds functions that dynamo recompiles after the first 50 steps because a guard of the compiled code
fails: the shape of a batch, a number that changes, a flag that flips.

Fires when: ≥ 3 compilations come after the 50th step, or take ≥ 2 % of the time; names the function and the guard.

Why it is slow: the step stops while the CPU compiles, for a tenth of a second to minutes. After eight versions of a
function (`torch._dynamo.config.recompile_limit`) dynamo gives up, and the function runs eagerly from then on.

Evidence: compilations after the 50th step and their time, from dynamo's own records (its latest 64); the function and
the guard.

Fix: if a shape changes, mark its dimension as dynamic, or pad batches to a few sizes; pass a changing value as a
tensor; or exclude that part from the compiled code.

Estimate: the time of these compilations: all of it, or half of it if other shapes are still to come.

False alarms: a second model or an evaluation that begins late compiles once, not three times.
"""

from __future__ import annotations

from collections import Counter

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.advisor.model.measures.step_measures import COMPILE_LATE, COMPILE_LATE_S, STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    model, step = model_of(a), a.value(STEP_TIME_S)
    late, seconds = a.by_rank(COMPILE_LATE), a.by_rank(COMPILE_LATE_S)
    if not late or not seconds:
        compiled = any(facts_of(a, rank).get("compiled_frames") for rank in model.own)
        return NotMeasured(RULE.id, (COMPILE_LATE,)) if compiled else Clear(RULE.id)
    ranks = tuple(rank for rank in late if late[rank] >= t["count"] or seconds[rank] >= t["share"] * step)
    if not ranks:
        return Clear(RULE.id)
    worst = max(ranks, key=lambda rank: seconds[rank])
    lost = min(seconds[worst], 0.999 * step)
    everywhere = len(ranks) == len(model.own)
    where, note, reason = _most_often(facts_of(a, worst))
    return Finding(
        rule=RULE.id,
        title="Repeated recompilation by torch.compile",
        severity=severity(lost / step) or "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=() if everywhere else ranks),
        evidence=(
            Evidence.of(COMPILE_LATE, late[worst], t["count"], note, form="alone" if where else "explains"),
            Evidence.of(COMPILE_LATE_S, lost, t["share"] * step, f"{100 * lost / step:.1f} % of the step"),
        ),
        fixes=_fixes(reason, where),
        saving=model.saving(step - lost, step - 0.5 * lost, "none or half of these recompilations"),
    )


def _fixes(why: str, where: Where | None) -> tuple[Fix, ...]:
    eager = Fix("run this part in eager mode: @torch.compiler.disable", "", where, "one line")
    if "size" not in why and "stride" not in why:
        return (
            Fix(
                "pass the value that changes as a tensor, or use it outside of the compiled function",
                "",
                where,
                "small change",
            ),
            eager,
        )
    dynamic = Fix("mark the changing dimension as dynamic", "torch._dynamo.mark_dynamic(batch, 0)", where, "one line")
    return (
        dynamic,
        Fix("pad batches to a few sizes to limit the compiled shapes", "", None, "small change"),
        eager,
    )


def _most_often(facts: RankFacts) -> tuple[Where | None, str, str]:
    """(the function recompiled most often, how often and why, dynamo's latest reason)."""
    again = [made for made in facts.get("compilations", ()) if made.get("reason")]
    if not again:
        return None, "dynamo does not report which function", ""
    (file, line, function), times = Counter((m["file"], m["line"], m["function"]) for m in again).most_common(1)[0]
    reason = next(m["reason"] for m in reversed(again) if m["function"] == function)
    return Where(file, line), f"{function} was recompiled {counted(times, 'time')}: {reason}", str(reason)


RULE = rule(
    __name__,
    "Repeated recompilation by torch.compile",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "count": Threshold(3, "one late compilation may be a second model, a second one its backward pass"),
        "share": Threshold(0.02, "severity 'low' begins at 2 % of the step"),
    },
)
