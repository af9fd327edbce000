"""Host memory creeps.

What it does: finds ranks or loader workers whose memory grows steadily after the warm-up, and estimates how long the
remaining memory will last.

Fires when: memory grows steadily by ≥ 10 %; severity by the time until it runs out.

Why it matters: training is as fast as ever until the kernel's OOM killer ends a rank, hours into the run and without a
line in the log.

Evidence: memory without a backing file (resident, shared memory included), as the median of each third of the run after
its first quarter, and the median slope between all its readings. For one worker also its private pages: Python writes a
reference count into every object it touches, so a worker copies what it inherited, page by page, and its resident
memory does not show it. The remaining memory is the host's available memory, or the control group's limit minus its
use, plus page cache that can be dropped. The growth of all growing processes is summed.

Fix: in a rank, results that are kept with their graph: `total += loss` keeps every step's graph, `total += loss.item()`
or `loss.detach()` none. In workers, a cache in the data set that is never emptied. For copied pages, lists and dicts of
Python objects: keep the index in arrays (numpy, torch, pyarrow), which have one reference count for all.

Estimate: none while it lasts; the severity follows the time until memory ends: ten minutes critical, an hour high,
twelve hours medium.

False alarms: warm-up, caching allocators and caches that fill settle: their last third grows less than the one before.
Mapped files and page cache can be dropped and do not count. Copying by workers ends when all inherited pages are
copied. A data set's cache ends with its first pass, or with each pass if new workers fill it again. If these fit into
memory, the severity is low; after the first pass only the other growth counts. Workers that restart each epoch are
judged by the last epoch alone.
"""

from __future__ import annotations

import math

from rn50_advisor.advisor.model.analysis import Analysis, MemoryTrend
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, Severity
from rn50_advisor.advisor.model.measures.host_measures import MEMORY_HEADROOM_MB, MEMORY_WATCHED_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.memory.memory_growth import growth_severity, growth_title, rises
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    victims = [death for death in a.deaths if death.oom_killed]
    # after an OOM kill the growth need not prove that it continues
    growing = [trend for trend in a.memory if rises(trend.thirds_mb, trend.growth, t) and (victims or _long(trend, t))]
    if any(trend.role == "worker" and not trend.copied for trend in growing):
        # a worker's new memory is private too: count it as one growth, not two
        growing = [trend for trend in growing if not trend.copied]
    if not growing:
        return Clear(RULE.id)
    lasts_s = _lasts_s(growing, a.get(MEMORY_HEADROOM_MB))
    level: Severity = "critical" if victims else growth_severity(lasts_s)
    worst = max(growing, key=lambda trend: trend.mb_per_s)
    ranks = {trend.rank for trend in growing} | {death.rank for death in victims if death.rank is not None}
    everywhere = len(ranks) == a.world_size > 1 or any(trend.copied for trend in growing)
    return Finding(
        rule=RULE.id,
        title=_title(worst, lasts_s, killed=bool(victims)),
        severity=level,
        confidence=confidence(a, cap=0.9),
        seconds_per_step=0.0,
        scope=Affected(ranks=() if everywhere else tuple(sorted(ranks))),
        evidence=(*(_evidence(trend, t) for trend in growing), *_left(a, growing, lasts_s)),
        fixes=(_fix(worst),),
        fatal=bool(victims),
        urgent=level == "critical",
    )


def _long(trend: MemoryTrend, t: Thresholds) -> bool:
    return trend.seconds >= t["seconds"] or (trend.steps >= t["steps"] and trend.seconds >= t["steps_seconds"])


def _lasts_s(growing: list[MemoryTrend], headroom_mb: float | None) -> float:
    """Seconds until no memory is left; infinite if that is unknown or the growth ends before."""
    if headroom_mb is None:
        return math.inf
    endless = sum(trend.mb_per_s for trend in growing if trend.left_mb is None)
    copying = [trend for trend in growing if trend.left_mb is not None]
    rate = endless + sum(trend.mb_per_s for trend in copying)
    after_copying = headroom_mb - sum(trend.left_mb or 0.0 for trend in copying)
    if after_copying < 0 or not copying:
        return headroom_mb / rate
    return after_copying / endless if endless > 0 else math.inf


def _who(trend: MemoryTrend) -> str:
    if trend.copied:
        return "the loader workers"
    return f"rank {trend.rank}" if trend.role == "rank" else f"the loader workers of rank {trend.rank}"


def _title(trend: MemoryTrend, lasts_s: float, *, killed: bool) -> str:
    if killed:
        return f"The memory of {_who(trend)} grew until the OOM killer ended it"
    return growth_title(f"The memory of {_who(trend)}", lasts_s)


def _evidence(trend: MemoryTrend, t: Thresholds) -> Evidence:
    first, _, third = trend.thirds_mb
    what = "pages copied after fork, " if trend.copied else ""
    note = (
        f"{_who(trend)}: {what}from {first:.0f} to {third:.0f} MB between the first and the last third of "
        f"{duration(trend.seconds)}, {60 * trend.mb_per_s:.3g} MB a minute"
    )
    return Evidence("memory growth", trend.growth, "share", t["growth"], note)


def _left(a: Analysis, growing: list[MemoryTrend], lasts_s: float) -> tuple[Evidence, ...]:
    left = a.get(MEMORY_HEADROOM_MB)
    if left is None:
        return ()
    if math.isfinite(lasts_s):
        return (Evidence.of(MEMORY_HEADROOM_MB, left, note=f"lasts {duration(lasts_s)} at this pace"),)
    first = any(trend.left_mb is not None and not trend.copied for trend in growing)
    enough = "the rest of this pass over the data; then the caches are full" if first else "what workers can copy"
    return (Evidence.of(MEMORY_HEADROOM_MB, left, note=f"enough for {enough}", form="explains"),)


def _fix(trend: MemoryTrend) -> Fix:
    if trend.copied:
        return Fix(
            "keep the data set's index in arrays, not in lists or dicts of Python objects",
            "self.names = np.array(names)  # one reference count for all of them",
            None,
            "small change",
        )
    if trend.role == "worker":
        return Fix("bound what the data set keeps in each worker (caches, open files, lists of samples)", "", None)
    if trend.left_mb is not None:
        return Fix("limit what the data set keeps in memory (caches, lists of samples), unless all of it fits", "")
    return Fix(
        f"find what rank {trend.rank} keeps of every step",
        "total += loss.item()  # not `total += loss`, which keeps each step's graph",
        None,
        "small change",
    )


RULE = rule(
    __name__,
    "host memory creeps",
    check,
    needs=(MEMORY_WATCHED_S,),
    thresholds={
        "growth": Threshold(0.10, "of what the process held in the first third: less is fragmentation"),
        "steps": Threshold(200, "steps: by then the allocator's cache has seen every shape"),
        "steps_seconds": Threshold(20, "seconds that these steps must last: two hundred short steps may take only one"),
        "seconds": Threshold(60, "seconds: after this time a trend also shows with long steps"),
        "lasting": Threshold(0.3, "of the growth in each half: memory that settles grows less in the second"),
    },
)
