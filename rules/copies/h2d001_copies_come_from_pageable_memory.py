"""Copies come from pageable memory.

What it does: finds batches that are copied to the GPU from memory that is not pinned.

Why it is slow: the driver first copies pageable memory into a pinned buffer of its own, on the CPU, in the calling thread: at a fraction
of the link's bandwidth, and `non_blocking=True` changes nothing of it. The GPU computes nothing meanwhile.

Evidence: in some steps the recorder notes each copy of the training thread, its bytes, whether its memory is pinned, and how long it held
the host; the shortest of them counts. A copy takes at least what the link takes for its bytes.

Fix: `pin_memory=True` for the loader and `non_blocking=True` for the copy.

Estimate: down to what the link takes from pinned memory; half of that for sure. The severity is that of their mean.

False alarms: copies on a stream of their own hide behind the compute and are not counted. Pinning costs memory and a thread: small
batches are left alone.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.gpu.gpu_pace import HostCopy
from rn50_advisor.rules.analysis_reading import common, model_of, step_without, training_loader, where_of
from rn50_advisor.rules.compute.compute_cost import link_of, without_waiting
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

# Pageable copies were seen to reach a fifth to a half of what pinned ones do.
_SLOWEST = 0.2


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    pageable, step, model = a.by_rank("copy.pageable_mb"), a.value("step.time_s"), model_of(a)
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
        title="Batches are copied to the GPU from pageable memory",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=step - expected,
        evidence=(
            Evidence("copy.pageable_mb", pageable[rank], "MB", None, f"a step and rank{_places(a, rank)}"),
            Evidence(
                "copy time",
                copy,
                "s",
                t["slower"] * pinned,
                f"{100 * copy / step:.0f} % of a {1000 * step:.0f} ms step; "
                f"from pinned memory {1000 * pinned:.1f} ms over {link_of(a, rank)[1]}",
            ),
        ),
        fixes=_fixes(a, rank),
        saving=model.saving(best, worst, "pinned memory, at the bandwidth of the link"),
    )


def _copy_s(a: Analysis, rank: int, mb: float) -> float:
    """Seconds a step: as a deep window has it, else as the host was held at the least, within what links can do."""
    told = a.get("kernel.pageable_s", rank)
    at_best = mb / link_of(a, rank)[0]
    return (
        max(told, at_best)
        if told is not None
        else min(max(a.get("copy.pageable_s", rank) or 0.0, at_best), at_best / _SLOWEST)
    )


def _of(a: Analysis, rank: int) -> list[HostCopy]:
    return [copy for copy in a.habits.copies if copy.rank == rank and not copy.pinned and not copy.aside]


def _places(a: Analysis, rank: int) -> str:
    places = dict.fromkeys(f"{copy.file.rpartition('/')[2]}:{copy.line}" for copy in _of(a, rank) if copy.file)
    return f", at {', '.join(list(places)[:3])}" if places else ""


def _fixes(a: Analysis, rank: int) -> tuple[Fix, ...]:
    loader = training_loader(a, {rank: 0.0})
    fixes = []
    if loader is None or not loader.pin_memory:
        fixes.append(Fix("pin_memory=True", "DataLoader(..., pin_memory=True)", where_of(loader), "one line"))
    else:
        change = "give the batch's type a method pin_memory(), or collate into tensors, lists and dicts"
        fixes.append(Fix("the loader pins, but not what it yields", change, where_of(loader), "small change"))
    blocking = next((copy for copy in _of(a, rank) if not copy.non_blocking and copy.file), None)
    if blocking is not None:
        change = without_waiting(blocking.call)
        fixes.append(Fix("do not wait for the copy", change, Where(blocking.file, blocking.line), "one line"))
    return tuple(fixes)


RULE = rule(
    __name__,
    "copies come from pageable memory",
    check,
    needs=("step.time_s", "copy.pageable_mb"),
    explains=("CMP008",),
    thresholds={
        "cost": Threshold(0.02, "of the step, that pinned memory is expected to spare: severity 'low' begins here"),
        "slower": Threshold(1.25, "times as long as from pinned memory: less is the noise of a link"),
    },
)
