"""Host memory growth.

What it does: finds ranks or loader workers whose memory grows steadily after the warm-up, and estimates how long the
remaining memory will last. It also finds workers that have stopped growing, but hold copies of a data set's Python
objects that take much of the job's memory.

Fires when: memory grows steadily by ≥ 10 %, severity by the time until it runs out; or workers hold copies of Python
objects that take ≥ 25 % of the memory that would be free without them.

Why it matters: training is as fast as ever until the kernel's OOM killer ends a rank, hours into the run and without a
line in the log.

Evidence: memory without a backing file (resident, shared memory included), as the median of each third of the run after
its first quarter, and the median slope between all its readings. For one worker also its private pages: Python writes a
reference count into every object it touches, so a worker copies what it inherited, page by page, and its resident
memory does not show it. Copies that no longer grow are the private pages of one worker beyond those that it allocated
and beyond 25 MB, times the workers, and at most what the lists and dicts of the data set can take; the largest of them
is named. The remaining memory is the host's available memory, or the control group's limit minus its use, plus page
cache that can be dropped. The growth of all growing processes is summed.

Fix: in a rank, results that are kept with their graph: `total += loss` keeps every step's graph, `total += loss.item()`
or `loss.detach()` none. In workers, a cache in the data set that is never emptied. For copied pages, lists and dicts of
Python objects: keep the index in arrays (numpy, torch, pyarrow), which have one reference count for all. Only tensors
are also shared with workers that are not forked. Fewer workers make fewer copies.

Estimate: none while it lasts; the severity follows the time until memory ends: ten minutes critical, an hour high,
twelve hours medium. Copies that no longer grow are medium if they take as much as is left: as many workers again, as
those of an evaluation, would end the job. Less is low.

False alarms: warm-up, caching allocators and caches that fill settle: their last third grows less than the one before.
Mapped files and page cache can be dropped and do not count. Copying by workers ends when all objects of the data set
are copied: then only their size counts. A list of images or arrays has few Python objects for its size and is hardly copied;
tensors and arrays in the data set never are. A data set's cache ends with its first pass, or with each pass if new
workers fill it again. If these fit into memory, the severity is low; after the first pass only the other growth counts.
Workers that restart each epoch are judged by the last epoch alone.
"""

from __future__ import annotations

import math
from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis, LoaderFacts, MemoryTrend
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, Severity
from rn50_advisor.advisor.model.input.data_loaders import within
from rn50_advisor.advisor.model.job_changes import CallChange, NumbersKept
from rn50_advisor.advisor.model.measures.host_measures import MEMORY_COPIED_MB, MEMORY_HEADROOM_MB, MEMORY_WATCHED_S
from rn50_advisor.advisor.model.measures.input_measures import LOADER_WORKERS
from rn50_advisor.advisor.model.wording.quantities import duration, number
from rn50_advisor.probes.documents.loader_documents import DescribedDataset, DescribedObjects
from rn50_advisor.rules.analysis_reading import training_loader, where_of
from rn50_advisor.rules.memory.memory_growth import growth_severity, growth_title, rises
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule

_OBJECTS_ERROR = 1.25  # times the objects' size as sampled: two workers copied 362 MB of 360
_COPIED_SHARE_MEDIUM = 0.5  # as many copies again, as of an evaluation's workers, do not fit


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    victims = [death for death in a.deaths if death.oom_killed]
    # after an OOM kill the growth need not prove that it continues
    growing = [trend for trend in a.memory if rises(trend.thirds_mb, trend.growth, t) and (victims or _long(trend, t))]
    if any(trend.role == "worker" and not trend.copied for trend in growing):
        # a worker's new memory is private too: count it as one growth, not two
        growing = [trend for trend in growing if not trend.copied]
    if not growing:
        return _settled(a, t) or Clear(RULE.id)
    growing = [_bounded(a, trend) for trend in growing]
    lasts_s = _lasts_s(growing, a.get(MEMORY_HEADROOM_MB))
    if not victims and math.isinf(lasts_s) and all(trend.copied for trend in growing) and (settled := _settled(a, t)):
        return settled
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
        fixes=_fixes(a, worst),
        fatal=bool(victims),
        urgent=level == "critical",
    )


def _settled(a: Analysis, t: Thresholds) -> Finding | None:
    """Copies of Python objects that workers hold without growing any more."""
    workers = a.of_host(a.by_rank(LOADER_WORKERS))
    loader = training_loader(a, workers)
    copied, left = a.get(MEMORY_COPIED_MB), a.get(MEMORY_HEADROOM_MB)
    objects = _objects(loader.dataset) if loader is not None else ()
    if loader is None or copied is None or left is None or not objects:
        return None
    count = sum(workers.values())
    copied = min(copied, count * sum(one["bytes"] or 0 for one in objects) / 1e6)
    share = copied / max(copied + left, 1e-9)
    if share < t["copied"]:
        return None
    largest = _largest(objects)
    named = f"{largest['name']}, a {largest['kind']} of {largest['length']:,} of {largest['of']}"
    much = share >= _COPIED_SHARE_MEDIUM
    return Finding(
        rule=RULE.id,
        title=f"Copy-on-write memory: {count:.0f} loader workers hold {copied:,.0f} MB of copied Python objects of the data set",
        severity="medium" if much else "low",
        confidence=confidence(a, cap=0.85),
        seconds_per_step=0.0,
        evidence=(
            Evidence.of(
                MEMORY_COPIED_MB, copied, None, f"{copied / count:,.0f} MB in each worker, of {named}", form="explains"
            ),
            Evidence(
                "share of the free memory", share, "share", t["copied"], "of what would be free without the copies"
            ),
            Evidence.of(MEMORY_HEADROOM_MB, left, note="is left", form="explains"),
        ),
        fixes=_fixes_of_copies(loader, largest["name"]),
        circumstances=frozenset({"copies settled"}),
    )


def _objects(dataset: DescribedDataset) -> tuple[DescribedObjects, ...]:
    """The lists and dicts of Python objects of a data set and of those inside it."""
    return tuple(one for each in within(dataset) for one in each.get("objects", ()))


def _largest(objects: tuple[DescribedObjects, ...]) -> DescribedObjects:
    return max(objects, key=lambda one: one["bytes"] or 0)


def _bounded(a: Analysis, trend: MemoryTrend) -> MemoryTrend:
    """Copies end when every worker holds all objects of the data set, long before it holds every page that it inherited."""
    loader = a.training_loader(trend.rank) if trend.copied else None
    objects = _objects(loader.dataset) if loader is not None else ()
    if not objects:
        return trend
    most = _OBJECTS_ERROR * trend.processes * sum(one["bytes"] or 0 for one in objects) / 1e6
    left = max(0.0, most - trend.thirds_mb[-1])
    return replace(trend, left_mb=left if trend.left_mb is None else min(left, trend.left_mb))


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
        f"{duration(trend.seconds)}, {number(60 * trend.mb_per_s)} MB per minute"
    )
    return Evidence("memory growth", trend.growth, "share", t["growth"], note)


def _left(a: Analysis, growing: list[MemoryTrend], lasts_s: float) -> tuple[Evidence, ...]:
    left = a.get(MEMORY_HEADROOM_MB)
    if left is None:
        return ()
    if math.isfinite(lasts_s):
        return (Evidence.of(MEMORY_HEADROOM_MB, left, note=f"lasts {duration(lasts_s)} at this pace", form="explains"),)
    first = any(trend.left_mb is not None and not trend.copied for trend in growing)
    enough = "the rest of this epoch; then the caches are full" if first else "the copyable objects of the workers"
    return (Evidence.of(MEMORY_HEADROOM_MB, left, note=f"enough for {enough}", form="explains"),)


def _fixes_of_copies(loader: LoaderFacts | None, name: str) -> tuple[Fix, ...]:
    arrays = Fix(
        "keep the data set's index in arrays, not in lists or dicts of Python objects",
        f"self.{name} = np.array({name})  # one reference count for all of them",
        where_of(loader),
        "small change",
    )
    if loader is None or loader.num_workers < 2:
        return (arrays,)
    fewer = CallChange.of("DataLoader", num_workers=loader.num_workers // 2)
    return arrays, Fix.of("fewer loader workers make fewer copies", fewer, where_of(loader), "one line")


def _fixes(a: Analysis, trend: MemoryTrend) -> tuple[Fix, ...]:
    if not trend.copied:
        return (_fix(trend),)
    loader = a.training_loader(trend.rank)
    objects = _objects(loader.dataset) if loader is not None else ()
    return _fixes_of_copies(loader, _largest(objects)["name"] if objects else "names")


def _fix(trend: MemoryTrend) -> Fix:
    if trend.role == "worker":
        return Fix("limit the memory of the data set in each worker (caches, open files, lists of samples)", "", None)
    if trend.left_mb is not None:
        return Fix("limit the memory of the data set (caches, lists of samples), unless all of it fits", "")
    return Fix.of(
        f"find the objects that rank {trend.rank} keeps from every step",
        NumbersKept(),
        None,
        "small change",
    )


RULE = rule(
    __name__,
    "Host memory growth",
    check,
    severities=("critical", "high", "medium", "low"),
    needs=(MEMORY_WATCHED_S,),
    thresholds={
        "growth": Threshold(0.10, "of what the process held in the first third: less is fragmentation"),
        "steps": Threshold(200, "steps: by then the allocator's cache has seen every shape"),
        "steps_seconds": Threshold(20, "seconds that these steps must last: two hundred short steps may take only one"),
        "seconds": Threshold(60, "seconds: after this time a trend also shows with long steps"),
        "copied": Threshold(
            0.25, "of the memory that would be free without the copies: twice as many workers still leave a quarter"
        ),
        "lasting": Threshold(0.3, "of the growth in each half: memory that settles grows less in the second"),
    },
)
