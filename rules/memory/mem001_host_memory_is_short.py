"""Host memory is short.

What it does: finds jobs whose processes stand still because the kernel has no page for them: it drops pages that are needed again, reads
them back from disk or from swap, and makes whoever asks for memory do that work first. And jobs that are so near their control group's
limit that a larger batch or one more worker would end them.

Why it is slow: a page that is read back takes a tenth of a millisecond from the fastest disk and ten from a slow one, in the middle of
whatever needed it: code of torch itself, a batch, weights.

Evidence: the kernel's own account of the time in which some task waited for memory (/proc/pressure/memory), where something of this job is
short indeed: nine tenths of its limit held by pages that cannot be dropped, less than a tenth of the host left, or pages coming back from
swap. Where the kernel keeps no such account, the pages read from swap alone.

Fix: fewer loader workers or batches fetched ahead, smaller caches in the data set, a higher limit. Swap does not help: training touches its
memory in every step.

Estimate: a quarter to all of the time in which some task waited: which of it kept the step up, the kernel does not say. From swap: a tenth
of a millisecond for each page.

False alarms: page cache, which fills every limit and is given back at once, and the kernel's names and inodes of files: both are taken off
(cgroup v1 does not tell the second; millions of small files then seem to be held). Pressure that a neighbour on the host makes,
or that the kernel makes by itself when it joins pages into huge ones: without a shortage of our own nothing is said. A job that fits into
its limit and stays there: it costs nothing, so it is only noted.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured, Severity
from rn50_advisor.rules.analysis_reading import mean, model_of, training_loader, where_of
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_MEASURES = ("memory.pressure_share", "memory.swap_in_mb_per_s", "memory.limit_used_share")
_PAGES_PER_MB = 1e6 / 4096
_PAGE_S = 1e-4  # from the fastest disks; slower ones make it worse
_SURE_SHARE = 0.25  # of the time in which some task waited
_ROOMY = 0.8  # of a limit: peaks and the page cache want the rest


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    if not any(a.has(name) for name in _MEASURES):
        return NotMeasured(RULE.id, _MEASURES)
    limits = a.by_rank("memory.limit_mb")
    held = {rank: share for rank, share in a.by_rank("memory.limit_used_share").items() if rank in limits}
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
        title="Processes stand still for want of memory" if waited else "Next to nothing is left of the memory limit",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=0.5 * waited * model.step_s,
        scope=Affected(ranks=ranks),
        evidence=tuple(_evidence(a, t, near or held)),
        fixes=_fixes(a, held),
        saving=model.saving(
            (1.0 - waited) * model.step_s,
            (1.0 - _SURE_SHARE * waited) * model.step_s,
            "no page that has to be read again",
        )
        if waited
        else None,
    )


def _waited_share(a: Analysis, t: Thresholds) -> float:
    """Share of the time in which something waited for memory that is short; 0 where none of ours is."""
    swapped, pressure = a.get("memory.swap_in_mb_per_s") or 0.0, a.get("memory.pressure_share")
    left = a.get("memory.host_left_share")
    held = max(a.by_rank("memory.limit_used_share").values(), default=0.0)
    if pressure is None:
        return min(1.0, swapped * _PAGES_PER_MB * _PAGE_S)
    short = held >= t["short"] or (left is not None and left <= 1.0 - t["short"]) or swapped >= t["swap_in"]
    return pressure if short else 0.0


def _left_mb(a: Analysis, rank: int) -> float:
    return round((1.0 - a.value("memory.limit_used_share", rank)) * a.value("memory.limit_mb", rank), 3)


def _evidence(a: Analysis, t: Thresholds, held: dict[int, float]) -> list[Evidence]:
    found = []
    pressure, swapped = a.get("memory.pressure_share"), a.get("memory.swap_in_mb_per_s")
    if pressure is not None:
        note = "of the time some process of the host waited for memory"
        found.append(Evidence("memory.pressure_share", pressure, "share", t["pressure"], note))
    if held:
        rank = max(held, key=lambda r: held[r])
        limit = a.value("memory.limit_mb", rank)
        note = f"of {limit:,.0f} MB are held by pages that cannot be dropped, {_left_mb(a, rank):,.0f} MB are left"
        found.append(Evidence("memory.limit_used_share", held[rank], "share", t["limit"], note))
    if swapped:
        found.append(Evidence("memory.swap_in_mb_per_s", swapped, "MB/s", t["swap_in"], "read back from swap"))
    left = a.get("memory.host_left_share")
    if left is not None and not held:
        found.append(
            Evidence("memory.host_left_share", left, "share", 1.0 - t["short"], "of the host's memory is left")
        )
    return found


def _fixes(a: Analysis, held: dict[int, float]) -> tuple[Fix, ...]:
    workers, worker_mb = a.by_rank("loader.workers"), a.get("memory.worker_mb")
    fixes = []
    if workers and mean(workers) >= 1:
        each = f", {worker_mb:,.0f} MB each" if worker_mb else ""
        told = f"fewer loader workers or fewer batches ahead: {mean(workers):.0f} workers a rank{each}"
        where = where_of(training_loader(a, workers))
        fixes.append(Fix(told, "DataLoader(..., prefetch_factor=1)", where, "one line"))
    if held:
        rank = max(held, key=lambda r: held[r])
        enough = held[rank] * a.value("memory.limit_mb", rank) / _ROOMY
        fixes.append(Fix(f"raise the limit to {enough:,.0f} MB or more", "", None, "outside the code"))
    else:
        fixes.append(Fix("a machine with more memory, or fewer processes beside the job", "", None, "outside the code"))
    return tuple(fixes)


RULE = rule(
    __name__,
    "host memory is short",
    check,
    needs=("step.time_s",),
    explains=("DAT002", "DAT010", "DSK001", "COM002", "CMP007"),
    thresholds={
        "pressure": Threshold(0.05, "of the time, from the catalogue: below it a busy machine's reclaim is no trouble"),
        "short": Threshold(
            0.9, "of the limit or the host in pages that cannot be dropped: the cache still has a tenth"
        ),
        "swap_in": Threshold(1.0, "MB/s: 250 pages a second, at best a fortieth of the time"),
        "limit": Threshold(0.95, "of the limit: from there on the kernel looks for pages at every request"),
        "left_mb": Threshold(1000, "one worker more, or a larger batch; of large limits a twentieth is plenty"),
    },
)
