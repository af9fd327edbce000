"""Garbage collection pauses.

What it does: finds steps that Python's cyclic garbage collector interrupts for a noticeable share of the time, or
repeatedly with long pauses.

Fires when: collections take ≥ 2 % of the step on the critical path, or pauses of 50 ms repeat.

Why it is slow: a full collection visits every object that may be part of a cycle, and a process with torch, a data
set's index and a model has millions. Nothing else in the rank runs meanwhile. With several ranks each one collects at a
different time, and each time all the others wait for it.

Evidence: how much shorter the mean step would be without any rank's collections, step by step; time in collections on
each rank; pauses. This counts every collection of any generation that runs in the training thread, from start to
end, including finalizers and weak references' callbacks, whether the interpreter or a call of `gc.collect()`
started it. Collections in another thread are not counted.

Fix: where long collections take most of the time, `gc.freeze()` after the setup, so that permanent objects are not
visited again. Where short ones do, `gc.set_threshold(100_000, 10, 10)`: most new objects are gone before they are
visited. Or `gc.disable()` and one `gc.collect()` every N steps, at the same step on all ranks. If the loop or the data
set calls `gc.collect()` itself, do so less often.

Estimate: at best no collections and warm caches; at worst `gc.freeze()` leaves the short ones and a tenth of the long
ones, and the threshold a third of the short ones.

False alarms: the collections of the warm-up and of a checkpoint's first pickling; a rank that collects while it would
have waited anyway.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, Severity, Where
from rn50_advisor.advisor.model.job_changes import Invocation, Setup
from rn50_advisor.advisor.model.measures.step_measures import (
    GC_CRITICAL_S,
    GC_LONG_SHARE,
    GC_REPEATED_PAUSE_S,
    STEP_GC_S,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.probes.documents.rank_documents import GarbageFacts
from rn50_advisor.rules.analysis_reading import model_of, no_collections
from rn50_advisor.rules.loop.between_steps import collecting_line, collects_between_steps, hottest
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity
from rn50_advisor.rules.stragglers import since

# A rank belongs to the finding if it collects for at least this share of the largest rank's time.
_COLLECTOR_SHARE_MIN = 0.25
# A collection leaves the caches full of objects that no kernel needs: without any, steps were shorter by 0 to 20 % more
# than the collections themselves had taken. The rest of the step bounds it.
_COLD_CACHE_SHARE = 0.25
# From this share of the time on, long collections are what gc.freeze() can spare.
_LONG_SHARE_MIN = 0.5
# Share that remains at worst. Of 11 runs with a frozen heap none had more than 0.01 of the long ones left. Threads allocate beside the
# loop, and batches may hold more than 100,000 objects, so more may be left than the nothing that was seen.
_LEFT_OF_LONG = 0.1
_LEFT_OF_SHORT = 0.35


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    lost, step, own = a.value(GC_CRITICAL_S), a.value(STEP_TIME_S), a.by_rank(STEP_GC_S)
    pauses = a.by_rank(GC_REPEATED_PAUSE_S)
    pause = max(pauses.values(), default=0.0)
    level: Severity | None = severity(lost / step) if lost >= t["share"] * step else None
    if level is None and pause >= t["pause"]:
        level = "low"
    if level is None:
        return Clear(RULE.id)
    most = max(own.values())
    ranks = tuple(rank for rank, seconds in own.items() if seconds >= _COLLECTOR_SHARE_MIN * most)
    everywhere = len(ranks) == len(own)
    model = model_of(a)
    rest = max(step - lost, 1e-9)
    best = rest - _COLD_CACHE_SHARE * min(lost, rest)
    return Finding(
        rule=RULE.id,
        title="Garbage collection pauses in training",
        severity=level,
        confidence=confidence(a),
        seconds_per_step=lost,
        scope=Affected(ranks=() if everywhere else ranks, since_step=since(a, ranks)),
        evidence=(
            Evidence.of(
                GC_CRITICAL_S,
                lost,
                t["share"] * step,
                f"{100 * lost / step:.1f} % of the step; the rank that collects most spends {duration(most)} per step",
            ),
            Evidence.of(GC_REPEATED_PAUSE_S, pause, t["pause"], "as long in at least three steps", form="explains"),
            *_counted(a),
        ),
        fixes=_fixes(a, ranks),
        saving=model.saving(
            best,
            rest + _left(a, ranks) * lost,
            "no collections, or the remaining ones, on the ranks that others wait for",
        ),
    )


def _counted(a: Analysis) -> tuple[Evidence, ...]:
    rows = [
        counts
        for facts in a.rank_facts.values()
        if len(counts := facts.get("gc", GarbageFacts()).get("collections", [])) > 1
    ]
    if not rows:
        return ()
    note = f"full collections so far, and {max(sum(row[:-1]) for row in rows)} of younger generations"
    return (Evidence("collections", float(max(row[-1] for row in rows)), "", None, note),)


def _fixes(a: Analysis, ranks: tuple[int, ...]) -> tuple[Fix, ...]:
    together = Fix(
        "collect only at chosen steps, on all ranks at once",
        "gc.disable()  # before the loop\nif step % 500 == 0: gc.collect()",
        None,
        "small change",
    )
    if own := no_collections(a):
        return (own, together)
    if called := collecting_line(a):
        place, seen = Where(called.file, called.line), f"{100 * called.share:.0f} % of the stacks between steps"
        return (
            Fix("remove gc.collect(), or call it every 500 steps", f"# here: {seen}", place, "one line"),
            together,
        )
    # the interpreter collects where objects are created, and few are created between steps
    if collects_between_steps(a):
        less = "collect less often at this line: fewer calls of gc.collect(), or fewer new objects"
        return (Fix(less, "", hottest(a, output=False)[1], "one line"), together)
    frozen = Setup((Invocation("gc.collect"), Invocation("gc.freeze")))
    freeze = Fix.of("gc.freeze() once model, data and optimizer are set up", frozen, None, "one line")
    rarely = Setup((Invocation("gc.set_threshold", (100_000, 10, 10)),))
    seldom = Fix.of("collect young generations less often", rarely, None, "one line", more=": cycles then live longer")
    return (freeze, seldom, together) if _mostly_long(a, ranks) else (seldom, together)


def _mostly_long(a: Analysis, ranks: tuple[int, ...]) -> bool:
    return max((a.get(GC_LONG_SHARE, rank) or 0.0 for rank in ranks), default=0.0) >= _LONG_SHARE_MIN


def _left(a: Analysis, ranks: tuple[int, ...]) -> float:
    """Share of the collections that remains at worst with the first fix."""
    if no_collections(a) or collects_between_steps(a):
        return _LEFT_OF_LONG
    if not _mostly_long(a, ranks):
        return _LEFT_OF_SHORT
    long = min(a.get(GC_LONG_SHARE, rank) or 0.0 for rank in ranks)
    return 1.0 - long + _LEFT_OF_LONG * long


RULE = rule(
    __name__,
    "Garbage collection pauses",
    check,
    needs=(STEP_TIME_S, STEP_GC_S, GC_CRITICAL_S),
    thresholds={
        "share": Threshold(0.02, "severity 'low' begins at 2 % of the step"),
        "pause": Threshold(
            0.05, "seconds: a pause that is visible in a plot of steps, and that all other ranks wait for"
        ),
    },
)
