"""Shared memory (/dev/shm) too small.

What it does: finds loader workers that died because /dev/shm was full, and a /dev/shm that is nearly full while workers
use it.

Fires when: a worker died for lack of space in `/dev/shm`, or it is ≥ 90 % full.

Why it matters: workers hand over their batches through /dev/shm. When it is full, the next worker is killed by SIGBUS
or fails to write, and the job ends. Containers have 64 MB of it by default.

Evidence: how the worker died and what its rank reported; the size of /dev/shm as the job sees it, and its highest fill
level.

Fix: more shared memory (`docker run --shm-size=8g` or `--ipc=host`; in Kubernetes an emptyDir of medium Memory on
/dev/shm), or fewer and smaller batches in flight: `num_workers`, `prefetch_factor`.

Estimate: none: this does not affect speed, but it may end the job.

False alarms: data kept in /dev/shm on purpose fills it as well. The rule looks at the free space: twice the
batches that all workers can have in flight is enough, and so is a gigabyte if the size of a batch is not known.
"""

from __future__ import annotations

import re
import signal

from rn50_advisor.advisor.model.analysis import Analysis, Death, LoaderFacts
from rn50_advisor.advisor.model.findings import Affected, Clear, Evidence, Finding, Fix, NotMeasured
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.host_measures import SHM_TOTAL_MB, SHM_USED_SHARE
from rn50_advisor.rules.analysis_reading import where_of
from rn50_advisor.rules.rule import Threshold, Thresholds, rule

_FREE_ENOUGH_MB = 1000.0  # if the size of a batch is not known
# Torch's messages in or about a worker (MapAllocator.cpp, signal_handling.cpp). A long traceback may be cut off before its last line, but
# only a lack of shared memory fails in `_new_shared`.
_SHM_ERRORS = re.compile(
    r"insufficient shared memory|out of shared memory|unable to allocate shared memory|[Bb]us error"
    r"|(?:write to|resize|mmap \d+ bytes from) file </torch_.*(?:No space left|Cannot allocate)|in _new_shared$",
    re.M,
)


def check(a: Analysis, t: Thresholds) -> Finding | Clear | NotMeasured:
    loader = _loader(a)
    share, total = a.get(SHM_USED_SHARE), a.get(SHM_TOTAL_MB) or 0.0
    died = _died_of_it(a)
    if died is not None and not a.stopped_from_outside:
        return _fatal(a, died, loader)
    if share is None:
        return NotMeasured(RULE.id, (SHM_USED_SHARE,))
    if share < t["full"] or loader is None or (1.0 - share) * total > _enough_mb(a):
        return Clear(RULE.id)
    note = f"of {total:.0f} MB: a worker dies if a batch does not fit"
    return Finding(
        rule=RULE.id,
        title=f"Shared memory nearly full: /dev/shm at {100 * share:.0f} % of {total:.0f} MB",
        severity="medium",
        confidence=0.8,
        seconds_per_step=0.0,
        evidence=(Evidence.of(SHM_USED_SHARE, share, t["full"], note, form="explains"),),
        fixes=_fixes(loader),
    )


def _loader(a: Analysis) -> LoaderFacts | None:
    """The loader whose worker was killed, if it had made a batch by then; else the training loader."""
    killed = [(d.rank, d.loader) for d in a.deaths if d.role == "worker" and d.signal == signal.SIGBUS]
    known = [loader for loader in a.loaders if loader.num_workers]
    return max(known, key=lambda k: ((k.rank, k.id) in killed, k == a.training_loader(k.rank)), default=None)


def _enough_mb(a: Analysis) -> float:
    """Free space that is always enough: twice the batches that can be in flight at a time."""
    loaders = [known for known in a.loaders if known.num_workers and known.training is not False]
    if not loaders or not all(known.batch_bytes for known in loaders):
        return _FREE_ENOUGH_MB
    ahead = [known.num_workers * (known.prefetch_factor or 2) * (known.batch_bytes or 0) for known in loaders]
    return 2 * sum(ahead) / 1e6


def _died_of_it(a: Analysis) -> Death | None:
    """The rank that reports that shared memory ran out; else the worker killed by SIGBUS."""
    workers = [d for d in a.deaths if d.role == "worker" and d.signal == signal.SIGBUS]
    reporting = [d for d in a.deaths if d.role == "rank" and _SHM_ERRORS.search(d.exception)]
    return next(iter([*reporting, *workers]), None)


def _fatal(a: Analysis, died: Death, loader: LoaderFacts | None) -> Finding:
    lines = [line.strip() for line in died.exception.splitlines() if _SHM_ERRORS.search(line)]
    how = lines[-1][:200] if lines else "killed by SIGBUS"
    evidence = [
        Evidence(
            f"{died.role} {died.rank}", how, "", None, f"{died.t_s:.1f} s after the start, step {died.step}", "explains"
        )
    ]
    share, total = a.get(SHM_USED_SHARE), a.get(SHM_TOTAL_MB)
    if share is not None and total is not None:
        evidence.append(Evidence.of(SHM_TOTAL_MB, total, note=f"up to {100 * share:.0f} % full", form="explains"))
    return Finding(
        rule=RULE.id,
        title="Shared memory exhausted: a loader worker filled /dev/shm"
        + (f" of {total:.0f} MB" if total is not None else ""),
        severity="critical",
        confidence=0.95 if died.exception else 0.8,
        seconds_per_step=0.0,
        scope=Affected(ranks=(died.rank,) if died.rank is not None else (), since_step=died.step),
        evidence=tuple(evidence),
        fixes=_fixes(loader),
        fatal=True,
    )


def _fixes(loader: LoaderFacts | None) -> tuple[Fix, ...]:
    more = Fix(
        "give the job more shared memory",
        "docker run --shm-size=8g (or --ipc=host); Kubernetes: an emptyDir with medium: Memory on /dev/shm; "
        "elsewhere: mount -o remount,size=8G /dev/shm",
        where_of(loader),
        "outside the code",
    )
    if loader is None:
        return (more,)
    ahead = loader.prefetch_factor or 2
    half = max(1, loader.num_workers // 2)
    fewer = Fix.of(
        f"until then: num_workers={loader.num_workers} → {half}, prefetch_factor={ahead} → 1",
        CallChange.of("DataLoader", num_workers=half, prefetch_factor=1),
        where_of(loader),
        "one line",
        more=": fewer batches in flight",
    )
    return more, fewer


RULE = rule(
    __name__,
    "Shared memory (/dev/shm) too small",
    check,
    severities=("critical", "medium"),
    thresholds={"full": Threshold(0.9, "in most jobs the tenth left is less than the batches in flight")},
    steady_steps=0,
)
