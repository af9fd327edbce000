"""Host memory pressure.

What it does: finds jobs whose processes stall because the kernel has no free page for them: it drops pages that are
needed again, reads them back from disk or from swap, and makes the process that asks for memory do that work first. It
also finds jobs so close to their control group's limit that a larger batch or one more worker would end them.

Fires when: processes wait for memory for ≥ 5 % of the time while nine tenths of it are taken, or pages are swapped in; a note if a limit
is nearly reached.

Why it is slow: reading a page back takes a tenth of a millisecond from the fastest disk and ten from a slow one, in the
middle of the code that needed it: torch itself, a batch, weights.

Evidence: the kernel's own measure of the time in which some task waited for memory (/proc/pressure/memory), if memory
of this job is really short: nine tenths of its limit held by pages that cannot be dropped, less than a tenth of the
host left, or pages coming back from swap. If the kernel keeps no such measure, only the pages read from swap.

Fix: fewer loader workers or prefetched batches, smaller caches in the data set, a higher limit. Swap does not help:
training touches its memory in every step.

Estimate: a quarter to all of the time in which some task waited, because the kernel does not show which part of it
delayed the step. From swap: a tenth of a millisecond for each page.

False alarms: page cache, which fills every limit and is released at once, and the kernel's file names and inodes: both
are subtracted (cgroup v1 does not report the second; millions of small files then appear to be held). Pressure that a
neighbour on the host causes, or the kernel when it builds huge pages: without a shortage in this job the rule stays
silent. A job that fits into its limit and stays there costs nothing, so it is only a note.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Severity
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.host_measures import (
    MEMORY_HOST_LEFT_SHARE,
    MEMORY_LIMIT_MB,
    MEMORY_LIMIT_USED_SHARE,
    MEMORY_PRESSURE_SHARE,
    MEMORY_SWAP_IN_MB_PER_S,
    MEMORY_WORKER_MB,
)
from rn50_advisor.advisor.model.measures.input_measures import LOADER_WORKERS
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.rules.analysis_reading import mean, model_of, training_loader, where_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_MEASURES = (MEMORY_PRESSURE_SHARE, MEMORY_SWAP_IN_MB_PER_S, MEMORY_LIMIT_USED_SHARE)
_PAGES_PER_MB = 1e6 / 4096
_PAGE_S = 1e-4  # from the fastest disks; slower ones make it worse
_GAIN_SHARE_MIN = 0.25  # of the time in which some task waited
_LIMIT_SHARE_MAX = 0.8  # of a limit: peaks and the page cache need the rest


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if not any(a.has(name) for name in _MEASURES):
        return NotMeasured(RULE.id, _MEASURES)
    limits = a.by_rank(MEMORY_LIMIT_MB)
    held = {rank: share for rank, share in a.by_rank(MEMORY_LIMIT_USED_SHARE).items() if rank in limits}
    near = {rank: share for rank, share in held.items() if share >= t["limit"] and _left_mb(a, rank) <= t["left_mb"]}
    waited = _waited_share(a, t)
    level: Severity | None = severity(waited)
    if waited < t["pressure"] or level is None:
        waited, level = 0.0, "low" if near else None
    if level is None:
        return Clear(RULE.id)
    model = model_of(a)
    ranks = tuple(sorted(near)) if len(near) < a.world_size else ()
    return Finding(
        rule=RULE.id,
        title="Host memory pressure: processes stall" if waited else "Host memory limit nearly reached",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=0.5 * waited * model.step_s,
        scope=Affected(ranks=ranks),
        evidence=tuple(_evidence(a, t, near or held)),
        fixes=_fixes(a, held),
        saving=model.saving(
            (1.0 - waited) * model.step_s,
            (1.0 - _GAIN_SHARE_MIN * waited) * model.step_s,
            "no pages read back",
        )
        if waited
        else None,
    )


def _waited_share(a: Analysis, t: Thresholds) -> float:
    """Share of the time in which some task waited for memory; 0 if this job's memory is not short."""
    swapped, pressure = a.get(MEMORY_SWAP_IN_MB_PER_S) or 0.0, a.get(MEMORY_PRESSURE_SHARE)
    left = a.get(MEMORY_HOST_LEFT_SHARE)
    held = max(a.by_rank(MEMORY_LIMIT_USED_SHARE).values(), default=0.0)
    if pressure is None:
        return min(1.0, swapped * _PAGES_PER_MB * _PAGE_S)
    short = held >= t["short"] or (left is not None and left <= 1.0 - t["short"]) or swapped >= t["swap_in"]
    return pressure if short else 0.0


def _left_mb(a: Analysis, rank: int) -> float:
    return round((1.0 - a.value(MEMORY_LIMIT_USED_SHARE, rank)) * a.value(MEMORY_LIMIT_MB, rank), 3)


def _evidence(a: Analysis, t: Thresholds, held: dict[int, float]) -> list[Evidence]:
    found = []
    pressure, swapped = a.get(MEMORY_PRESSURE_SHARE), a.get(MEMORY_SWAP_IN_MB_PER_S)
    if pressure is not None:
        note = "of the time some process of the host waited for memory"
        found.append(Evidence.of(MEMORY_PRESSURE_SHARE, pressure, t["pressure"], note, unit="share", form="continues"))
    if held:
        rank = max(held, key=lambda r: held[r])
        limit = a.value(MEMORY_LIMIT_MB, rank)
        note = f"of {limit:,.0f} MB are held by pages that cannot be dropped, {_left_mb(a, rank):,.0f} MB are left"
        found.append(Evidence.of(MEMORY_LIMIT_USED_SHARE, held[rank], t["limit"], note, unit="share", form="continues"))
    if swapped:
        found.append(
            Evidence.of(MEMORY_SWAP_IN_MB_PER_S, swapped, t["swap_in"], "read back from swap", form="explains")
        )
    left = a.get(MEMORY_HOST_LEFT_SHARE)
    if left is not None and not held:
        found.append(
            Evidence.of(
                MEMORY_HOST_LEFT_SHARE,
                left,
                1.0 - t["short"],
                "of the host's memory is left",
                unit="share",
                form="continues",
            )
        )
    return found


def _fixes(a: Analysis, held: dict[int, float]) -> tuple[Fix, ...]:
    workers, worker_mb = a.by_rank(LOADER_WORKERS), a.get(MEMORY_WORKER_MB)
    fixes = []
    if workers and mean(workers) >= 1:
        each = f", {worker_mb:,.0f} MB each" if worker_mb else ""
        title = f"fewer loader workers or prefetched batches: {mean(workers):.0f} workers a rank{each}"
        where = where_of(training_loader(a, workers))
        fixes.append(Fix.of(title, CallChange.of("DataLoader", prefetch_factor=1), where, "one line"))
    if held:
        rank = max(held, key=lambda r: held[r])
        enough = held[rank] * a.value(MEMORY_LIMIT_MB, rank) / _LIMIT_SHARE_MAX
        fixes.append(Fix(f"raise the limit to {enough:,.0f} MB or more", "", None, "outside the code"))
    else:
        fixes.append(Fix("a machine with more memory, or fewer other processes", "", None, "outside the code"))
    return tuple(fixes)


RULE = rule(
    __name__,
    "Host memory pressure",
    check,
    needs=(STEP_TIME_S,),
    thresholds={
        "pressure": Threshold(0.05, "of the time, from the catalogue: below it a busy machine's reclaim does no harm"),
        "short": Threshold(
            0.9, "of the limit or the host in pages that cannot be dropped: the cache still has a tenth"
        ),
        "swap_in": Threshold(1.0, "MB/s: 250 pages a second, at best a fortieth of the time"),
        "limit": Threshold(0.95, "of the limit: from there on the kernel reclaims pages at every request"),
        "left_mb": Threshold(
            1000, "MB left: enough for another worker or a larger batch; a twentieth of a large limit is plenty"
        ),
    },
    triage_checks=("memory.limit_bytes", "memory.available_bytes", "psi.memory_share"),
)
