"""torch.compile compiles again and again.

What it does: finds functions that dynamo compiles anew after the first 50 steps, because a guard of the compiled code fails: the shape of a
batch, a number that changes, a flag that flips.

Why it is slow: the step stands still while it is compiled, on the CPU, for a tenth of a second to minutes. After eight versions of a
function (`torch._dynamo.config.recompile_limit`) dynamo gives it up, and it runs eagerly from then on.

Evidence: compilations after the 50th step and their time, as dynamo itself keeps them (its latest 64); the function and the guard.

Fix: where a shape changes, mark its dimension as dynamic, or pad batches to a few sizes; pass a value that changes as a tensor; or leave
that part out of the compiled code.

Estimate: the time of these compilations, all of it or half of it where other shapes are still to come.

False alarms: a second model or an evaluation that begins late compiles once, and not three times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Where
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.compute.compute_cost import facts_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    model, step = model_of(a), a.value("step.time_s")
    late, seconds = a.by_rank("compile.late"), a.by_rank("compile.late_s")
    if not late or not seconds:
        compiled = any(facts_of(a, rank).get("compiled_frames") for rank in model.own)
        return NotMeasured(RULE.id, ("compile.late",)) if compiled else Clear(RULE.id)
    ranks = tuple(rank for rank in late if late[rank] >= t["count"] or seconds[rank] >= t["share"] * step)
    if not ranks:
        return Clear(RULE.id)
    worst = max(ranks, key=lambda rank: seconds[rank])
    lost = min(seconds[worst], 0.999 * step)
    everywhere = len(ranks) == len(model.own)
    where, note = _most_often(facts_of(a, worst))
    return Finding(
        rule=RULE.id,
        title="torch.compile compiles again and again",
        severity=severity(lost / step) or "low",
        confidence=confidence(a, cap=0.9),
        seconds_per_step=lost,
        scope=Affected(ranks=() if everywhere else ranks),
        evidence=(
            Evidence("compile.late", late[worst], "", t["count"], note),
            Evidence("compile.late_s", lost, "s", t["share"] * step, f"{100 * lost / step:.1f} % of the step"),
        ),
        fixes=_fixes(note, where),
        saving=model.saving(step - lost, step - 0.5 * lost, "none of these compilations, or half of them"),
        # what happens on all ranks makes none slower than the others
        explains=() if everywhere else ("CMP007", "COM002"),
    )


def _fixes(why: str, where: Where | None) -> tuple[Fix, ...]:
    eager = Fix("leave this part eager: @torch.compiler.disable", "", where, "one line")
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
    dynamic = Fix(
        "mark the dimension that changes as dynamic", "torch._dynamo.mark_dynamic(batch, 0)", where, "one line"
    )
    return (
        dynamic,
        Fix("pad batches to a few sizes, so that few shapes are compiled", "", None, "small change"),
        eager,
    )


def _most_often(facts: Mapping[str, Any]) -> tuple[Where | None, str]:
    """The function that was compiled again most often, and why the last time."""
    again = [made for made in facts.get("compilations") or () if made.get("reason")]
    if not again:
        return None, "dynamo does not tell of which function"
    (file, line, function), times = Counter((m["file"], m["line"], m["function"]) for m in again).most_common(1)[0]
    reason = next(m["reason"] for m in reversed(again) if m["function"] == function)
    return Where(file, line), f"{function} was compiled {times} times more: {reason}"


RULE = rule(
    __name__,
    "torch.compile compiles again and again",
    check,
    needs=("step.time_s",),
    explains=("RUN004",),
    thresholds={
        "count": Threshold(3, "one late compilation may be a second model, two its backward"),
        "share": Threshold(0.02, "severity 'low' begins at 2 % of the step"),
    },
)
