"""Garbage collection pauses the step.

What it does: finds steps that Python's cyclic garbage collector interrupts for a noticeable share of the time, or
again and again for long.

Why it is slow: a full collection visits every object that may be part of a cycle, and a process with torch, a data
set's index and a model has millions. Nothing else of the rank runs meanwhile. With several ranks each collects at a
moment of its own, and each time all the others wait for it.

Evidence: how much shorter the mean step would be without any rank's collections, step by step; time in collections on
each rank; pauses. Counted is every collection of any generation that runs in the training thread, from its begin to
its end, finalizers and weak references' callbacks included, whether the interpreter or a call of `gc.collect()`
started it. Collections that another thread runs are not.

Fix: `gc.freeze()` once everything is set up, so that what lives for ever is not visited again; `gc.disable()` and one
`gc.collect()` every N steps, at the same step on all ranks. Where the loop calls `gc.collect()` itself: not in every
step.

Estimate: from no collections, and caches that stay warm, to half of them.

False alarms: the collections of the warm-up and of a checkpoint's first pickling; a rank that collects while it would
have waited anyway.
"""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, Severity
from rn50_advisor.rules.analysis_reading import model_of
from rn50_advisor.rules.loop.between_steps import hottest
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.stragglers import since

# A rank belongs to the finding when it collects at least this share of what the busiest collector does.
_TAKES_PART = 0.25
# Collections between steps explain time between steps when they are at least this share of it.
_MOST = 0.5
# A collection leaves the caches full of objects that no kernel wants: without any, steps were shorter by 0 to 20 % more
# than the collections themselves had taken. What is left of the step bounds it.
_COLD_CACHES = 0.25


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    lost, step, own = a.value("gc.critical_s"), a.value("step.time_s"), a.by_rank("step.gc_s")
    pauses = a.by_rank("gc.repeated_pause_s")
    pause = max(pauses.values(), default=0.0)
    level: Severity | None = severity(lost / step) if lost >= t["share"] * step else None
    if level is None and pause >= t["pause"]:
        level = "low"
    if level is None:
        return Clear(RULE.id)
    most = max(own.values())
    ranks = tuple(rank for rank, seconds in own.items() if seconds >= _TAKES_PART * most)
    everywhere = len(ranks) == len(own)
    model = model_of(a)
    rest = max(step - lost, 1e-9)
    best = rest - _COLD_CACHES * min(lost, rest)
    return Finding(
        rule=RULE.id,
        title="Garbage collection pauses the training",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        scope=Affected(ranks=() if everywhere else ranks, since_step=since(a, ranks)),
        evidence=(
            Evidence(
                "gc.critical_s",
                lost,
                "s",
                t["share"] * step,
                f"{100 * lost / step:.1f} % of the step; a rank by itself collects {1000 * most:.3g} ms a step",
            ),
            Evidence("gc.repeated_pause_s", pause, "s", t["pause"], "as long in three steps at least"),
            *_counted(a),
        ),
        fixes=_fixes(a),
        saving=model.saving(
            best, rest + 0.5 * lost, "no collections, or half of them, on the ranks that others wait for"
        ),
        explains=(*(() if everywhere else ("CMP007",)), *(("LOP002", "LOP004") if _between_steps(a) else ())),
    )


def _between_steps(a: Analysis) -> bool:
    """Collections are most of the time between steps."""
    gaps, spent = a.by_rank("step.gap_s"), a.by_rank("gc.between_s")
    rank = max(gaps, key=lambda r: gaps[r], default=None)
    return rank is not None and spent.get(rank, 0.0) >= _MOST * gaps[rank] > 0.0


def _counted(a: Analysis) -> tuple[Evidence, ...]:
    rows = [counts for facts in a.facts.values() if (counts := _collections(facts))]
    if not rows:
        return ()
    note = f"full ones so far, beside {max(sum(row[:-1]) for row in rows)} of young objects"
    return (Evidence("collections", float(max(row[-1] for row in rows)), "", None, note),)


def _collections(facts: Mapping[str, object]) -> list[int]:
    known = facts.get("gc")
    counts = known.get("collections") if isinstance(known, Mapping) else None
    return [int(n) for n in counts] if isinstance(counts, (list, tuple)) and len(counts) > 1 else []


def _fixes(a: Analysis) -> tuple[Fix, ...]:
    together = Fix(
        "collect at chosen steps only, on all ranks together",
        "gc.disable()  # before the loop\nif step % 500 == 0: gc.collect()",
        None,
        "small change",
    )
    if _between_steps(a):  # the interpreter collects where objects are made, and hardly any are made there
        return (
            Fix(
                "let this line collect less often: by gc.collect(), or by the objects it makes",
                "",
                hottest(a, output=False)[1],
                "one line",
            ),
            together,
        )
    freeze = Fix("gc.freeze() once model, data and optimizer are set up", "gc.collect(); gc.freeze()", None, "one line")
    return (freeze, together)


RULE = rule(
    __name__,
    "garbage collection pauses the step",
    check,
    needs=("step.time_s", "step.gc_s", "gc.critical_s"),
    explains=("COM002",),
    thresholds={
        "share": Threshold(0.02, "severity 'low' begins at 2 % of the step"),
        "pause": Threshold(
            0.05, "seconds: a pause that one sees in a plot of steps, and that all other ranks wait for"
        ),
    },
)
