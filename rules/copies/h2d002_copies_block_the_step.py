"""Blocking host-to-device copy.

What it does: finds copies to the GPU that come from pinned memory but still make the host wait for their end.

Fires when: batches are pinned, yet the step waits for their copy for ≥ 2 % of its time.

Why it is slow: without `non_blocking=True` the host waits until the GPU has done all queued work, including the copy.
It launches nothing meanwhile, so the GPU idles at the start of each step, and the copy itself does not overlap with
compute.

Evidence: in some steps the recorder records each copy of the training thread, its bytes, memory and arguments, and how
long it blocked the host; the link's time for these bytes; how long the GPU idled between steps.

Fix: `non_blocking=True`. If the copy itself is long, also copy the next batch ahead on a separate stream.

Estimate: the GPU's idle time between steps that the blocked host caused, and the copy if a separate stream hides it.

False alarms: copies from pageable memory block with any argument: they belong to H2D001. Copies on a separate stream
are not counted. If other waits block the host for as long in each step (CMP004), the idle time between steps belongs to them,
and this finding is listed under them.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Evidence, Finding, Fix, Where
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_IDLE_GAP_S
from rn50_advisor.advisor.model.measures.pace_measures import COPY_BLOCKING_MB, COPY_BLOCKING_S, SYNC_BLOCKED_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.wording.quantities import duration
from rn50_advisor.rules.analysis_reading import common, model_of
from rn50_advisor.rules.compute.compute_cost import hidden_s, if_not_held, link_of, without_waiting
from rn50_advisor.rules.rule import Threshold, Thresholds, confidence, rule, severity

_GAIN_SHARE_MIN = 0.25  # of the expected gain, if something else then blocks the host


def check(a: Analysis, t: Thresholds) -> Finding | Clear:
    blocking, step, model = a.by_rank(COPY_BLOCKING_MB), a.value(STEP_TIME_S), model_of(a)
    ranks = {rank: mb for rank, mb in blocking.items() if mb > 0}
    if not ranks or len(ranks) < len(blocking):
        return Clear(RULE.id)
    copies = {rank: mb / link_of(a, rank)[0] for rank, mb in ranks.items()}
    hidden = {rank: hidden_s(a, rank, a.get(COPY_BLOCKING_S, rank) or 0.0) for rank in ranks}
    exposed = {rank: copies[rank] + hidden[rank] for rank in ranks}
    after = if_not_held(a, hidden, hopeful=False)
    best = max(1e-9, after - min(copies.values()))
    level = severity((step - best) / step)
    if common(exposed) < t["exposed"] * step or level is None:
        return Clear(RULE.id)
    rank = next(r for r in exposed if exposed[r] >= common(exposed))
    blocked_s = a.get(COPY_BLOCKING_S, rank) or 0.0
    as_long = copies[rank] <= hidden[rank] <= (a.get(SYNC_BLOCKED_S, rank) or 0.0)
    return Finding(
        rule=RULE.id,
        title="Blocking host-to-device copies",
        severity=level,
        confidence=confidence(a, cap=0.85),
        seconds_per_step=(step - best) / 2,
        evidence=(
            Evidence.of(
                COPY_BLOCKING_MB,
                ranks[rank],
                note=f"per step and rank, from pinned memory; the host is blocked for {duration(blocked_s)}",
                form="explains",
            ),
            Evidence(
                "copy and idle time",
                exposed[rank],
                "s",
                t["exposed"] * step,
                f"{duration(copies[rank])} over {link_of(a, rank)[1]}, "
                f"and {duration(hidden[rank])} that the GPU idles between steps",
                "explains",
            ),
        ),
        fixes=_fixes(a, rank),
        saving=model.saving(
            best,
            step - _GAIN_SHARE_MIN * (step - after),
            "the host no longer waits for the copy; at best a separate stream overlaps it",
        ),
        circumstances=frozenset({"others hold as long"} if as_long else ()),
    )


def _fixes(a: Analysis, rank: int) -> tuple[Fix, ...]:
    blocking = [c for c in a.call_sites.copies if c.rank == rank and c.pinned and not c.non_blocking and not c.aside]
    found = next((copy for copy in blocking if copy.file), None)
    where = Where(found.file, found.line) if found else None
    call = found.call if found else "to"
    return (
        without_waiting("non_blocking=True", call, where),
        Fix(
            "or prefetch the next batch on a separate stream",
            "torch.cuda.Stream(), wait_stream, record_stream",
            None,
            "small change",
        ),
    )


RULE = rule(
    __name__,
    "Blocking host-to-device copy",
    check,
    needs=(STEP_TIME_S, COPY_BLOCKING_MB, GPU_IDLE_GAP_S),
    thresholds={"exposed": Threshold(0.02, "severity 'low' begins at 2 % of the step; below that nothing is reported")},
    traced=True,
)
