"""Copies block the step.

What it does: finds copies to the GPU that come from pinned memory and yet make the host wait for their end.

Why it is slow: without `non_blocking=True` the host waits until the GPU has done all that was queued, the copy last. It launches nothing
meanwhile, so the GPU idles at the begin of each step; and the copy itself stands in line with the compute.

Evidence: in some steps the recorder notes each copy of the training thread, its bytes, memory and arguments, and how long it held the host;
the time that the link takes for the bytes; how long the GPU idled between steps.

Fix: `non_blocking=True`; and, where the copy itself is long, a stream of its own that copies the next batch ahead.

Estimate: what the GPU idles between steps because the host was held, and the copy where a stream of its own hides it.

False alarms: copies from pageable memory block whatever they are told: that is H2D001's. Copies on a stream of their own are not counted.
Where other waits hold the host as long in each step (CMP004), the idle time between steps is theirs, and this is listed under them.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import hidden_s, if_not_held, link_of, without_waiting
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_LEAST = 0.25  # of the expected gain, should the host be held by something else then


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    blocking, step, model = a.by_rank("copy.blocking_mb"), a.value("step.time_s"), model_of(a)
    ranks = {rank: mb for rank, mb in blocking.items() if mb > 0}
    if not ranks or len(ranks) < len(blocking):
        return Clear(RULE.id)
    copies = {rank: mb / link_of(a, rank)[0] for rank, mb in ranks.items()}
    hidden = {rank: hidden_s(a, rank, a.get("copy.blocking_s", rank) or 0.0) for rank in ranks}
    exposed = {rank: copies[rank] + hidden[rank] for rank in ranks}
    after = if_not_held(a, hidden, hopeful=False)
    best = max(1e-9, after - min(copies.values()))
    level = severity((step - best) / step)
    if common(exposed) < t["exposed"] * step or level is None:
        return Clear(RULE.id)
    rank = next(r for r in exposed if exposed[r] >= common(exposed))
    held = a.get("copy.blocking_s", rank) or 0.0
    return Finding(
        rule=RULE.id,
        title="The host waits for the end of each copy to the GPU",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=(step - best) / 2,
        evidence=(
            Evidence(
                "copy.blocking_mb",
                ranks[rank],
                "MB",
                None,
                f"a step and rank, from pinned memory; the host is held {1000 * held:.1f} ms",
            ),
            Evidence(
                "copy and idle time",
                exposed[rank],
                "s",
                t["exposed"] * step,
                f"{1000 * copies[rank]:.1f} ms over {link_of(a, rank)[1]}, "
                f"and {1000 * hidden[rank]:.1f} ms that the GPU idles between steps",
            ),
        ),
        fixes=_fixes(a, rank),
        saving=model.saving(
            best,
            step - _LEAST * (step - after),
            "the host runs ahead of the copy; at best a stream of its own hides it",
        ),
        # of the same idle time other waits hold the host as long: with the copies alone let go, those would keep it
        causes=("CMP004",) if copies[rank] <= hidden[rank] <= (a.get("sync.blocked_s", rank) or 0.0) else (),
    )


def _fixes(a: Analysis, rank: int) -> tuple[Fix, ...]:
    held = [c for c in a.habits.copies if c.rank == rank and c.pinned and not c.non_blocking and not c.aside]
    found = next((copy for copy in held if copy.file), None)
    where = Where(found.file, found.line) if found else None
    call = found.call if found else "to"
    return (
        Fix("non_blocking=True", without_waiting(call), where, "one line"),
        Fix(
            "or copy the next batch ahead, on a stream of its own",
            "torch.cuda.Stream(), wait_stream, record_stream",
            None,
            "small change",
        ),
    )


RULE = rule(
    __name__,
    "copies block the step",
    check,
    needs=("step.time_s", "copy.blocking_mb", "gpu.idle_gap_s"),
    explains=("CMP008",),
    thresholds={"exposed": Threshold(0.02, "severity 'low' begins at 2 % of the step; below that nothing is said")},
)
