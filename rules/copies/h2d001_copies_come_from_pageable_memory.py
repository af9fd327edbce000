"""Host-to-device copy from pageable memory.

What it does: finds batches that are copied to the GPU from memory that is not pinned.

Fires when: batches are not pinned, and pinned memory would save ≥ 2 % of the step.

Why it is slow: the driver first copies pageable memory into a pinned buffer of its own, on the CPU, in the calling
thread. This reaches a fraction of the link's bandwidth, and `non_blocking=True` does not change it. The GPU computes
nothing meanwhile.

Evidence: in some steps the recorder records each copy of the training thread, its bytes, whether its memory is pinned,
and how long it blocked the host; the shortest of them counts. A copy takes at least as long as the link needs for its
bytes.

Fix: `pin_memory=True` for the loader and `non_blocking=True` for the copy.

Estimate: at best down to the link's time for a pinned copy; at worst half of that gain. The severity follows the mean
of both.

False alarms: copies on a separate stream overlap with compute and are not counted. Pinning costs memory and a thread,
so small batches are ignored.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.gpu.gpu_pace import HostCopy
from rn50_advisor.advisor.model.job_changes import CallChange
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_PAGEABLE_S
from rn50_advisor.advisor.model.measures.pace_measures import COPY_PAGEABLE_MB, COPY_PAGEABLE_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of, step_without, training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import link_of, without_waiting
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Pageable copies reached a fifth to a half of the bandwidth of pinned ones.
_PAGEABLE_RATE_MIN = 0.2


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    pageable, step, model = a.by_rank(COPY_PAGEABLE_MB), a.value(STEP_TIME_S), model_of(a)
    copies = {rank: _copy_s(a, rank, mb) for rank, mb in pageable.items()}
    copy = common(copies)
    spared = {rank: seconds - pageable[rank] / link_of(a, rank)[0] for rank, seconds in copies.items()}
    best = step_without(a, "forward", spared)
    worst = step_without(a, "forward", {rank: seconds / 2 for rank, seconds in spared.items()})
    expected = (best + worst) / 2
    level = severity((step - expected) / step)
    rank = next(r for r in copies if copies[r] >= copy)
    pinned = pageable[rank] / link_of(a, rank)[0]
    if step - expected < t["cost"] * step or level is None or copies[rank] < t["slower"] * pinned:
        return Clear(RULE.id)
    return Finding(
        rule=RULE.id,
        title="Host-to-device copies from pageable memory",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=step - expected,
        evidence=(
            Evidence.of(COPY_PAGEABLE_MB, pageable[rank], note=f"per step and rank{_places(a, rank)}", form="explains"),
            Evidence(
                "copy time",
                copy,
                "s",
                t["slower"] * pinned,
                f"{100 * copy / step:.0f} % of a {duration(step)} step; "
                f"pinned memory would take {duration(pinned)} over {link_of(a, rank)[1]}",
            ),
        ),
        fixes=_fixes(a, rank),
        saving=model.saving(best, worst, "pinned memory, at link bandwidth"),
    )


def _copy_s(a: Analysis, rank: int, mb: float) -> float:
    """Seconds per step, from a profiler window; else the shortest time that the host was blocked, within the link's limits."""
    in_window_s = a.get(KERNEL_PAGEABLE_S, rank)
    at_best = mb / link_of(a, rank)[0]
    return (
        max(in_window_s, at_best)
        if in_window_s is not None
        else min(max(a.get(COPY_PAGEABLE_S, rank) or 0.0, at_best), at_best / _PAGEABLE_RATE_MIN)
    )


def _pageable_copies(a: Analysis, rank: int) -> list[HostCopy]:
    return [copy for copy in a.call_sites.copies if copy.rank == rank and not copy.pinned and not copy.aside]


def _places(a: Analysis, rank: int) -> str:
    places = dict.fromkeys(
        f"{copy.file.rpartition('/')[2]}:{copy.line}" for copy in _pageable_copies(a, rank) if copy.file
    )
    return f", at {', '.join(list(places)[:3])}" if places else ""


def _fixes(a: Analysis, rank: int) -> tuple[Fix, ...]:
    loader = training_loader(a, {rank: 0.0})
    fixes = []
    if loader is None or not loader.pin_memory:
        fixes.append(
            Fix.of("pin_memory=True", CallChange.of("DataLoader", pin_memory=True), where_of(loader), "one line")
        )
    else:
        change = "add a pin_memory() method to the batch's type, or collate into tensors, lists and dicts"
        fixes.append(Fix("pin_memory=True has no effect on this batch type", change, where_of(loader), "small change"))
    blocking = next((copy for copy in _pageable_copies(a, rank) if not copy.non_blocking and copy.file), None)
    if blocking is not None:
        where = Where(blocking.file, blocking.line)
        fixes.append(without_waiting("make the copy asynchronous", blocking.call, where))
    return tuple(fixes)


RULE = rule(
    __name__,
    "Host-to-device copy from pageable memory",
    check,
    needs=(STEP_TIME_S, COPY_PAGEABLE_MB),
    thresholds={
        "cost": Threshold(0.02, "of the step saved by pinned memory, as expected: severity 'low' begins here"),
        "slower": Threshold(1.25, "times as long as from pinned memory: less is the noise of a link"),
    },
    traced=True,
)
