"""Why one run is faster or slower than another, and what disturbed either, in words."""

from __future__ import annotations

from collections.abc import Sequence

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.documents.comparison import WHOLE_STEP, Change, Estimate, FindingChange, PhaseDelta
from rn50_advisor.advisor.model.measures.host_measures import CPU_OTHER_CORES, CPU_STEAL_SHARE
from rn50_advisor.advisor.model.report import PHASE_TITLES
from rn50_advisor.advisor.model.wording.quantities import duration, percent, ratio

OTHERS_CORES = 0.1  # kept busy by other processes: less is the kernel and the advisor
DISTURBANCE_SHARE_MIN = 0.02  # of the step or of the CPUs: smaller disturbances are not reported
_PHASES_NAMED = 2
_NAMED_SHARE_MIN = 0.1  # of the step's change: a phase that changed less is not the reason


def reasons(
    change: Change, phases: Sequence[PhaseDelta], findings: Sequence[FindingChange], verdict: str | None
) -> str:
    """`per step +89.2 ms backward, +53.1 ms forward; appeared: Thermal throttling (GPU001)`; empty if nothing explains the change.

    `verdict`: the rule that the slower run's verdict names, which comes before costlier findings.
    """
    whole = next((delta.delta_s for delta in phases if delta.phase == WHOLE_STEP), None)
    named = sorted(
        (
            delta
            for delta in phases
            if delta.phase != WHOLE_STEP and whole is not None and _explains(delta.delta_s, whole)
        ),
        key=lambda delta: -abs(delta.delta_s.value),
    )
    moved = ", ".join(_moved(delta) for delta in named[:_PHASES_NAMED])
    parts = [f"per step {moved}" if moved else ""]
    state = "appeared" if change == "regressed" else "gone"
    told = sorted(
        (finding for finding in findings if finding.state == state),
        key=lambda finding: (finding.rule != verdict, -(finding.base_s or finding.other_s or 0.0)),
    )
    parts += [f"{state}: {finding.title} ({finding.rule})" for finding in told[:1]]
    return "; ".join(part for part in parts if part)


def _explains(delta: Estimate, whole: Estimate) -> bool:
    sure = delta.lo > 0 or delta.hi < 0
    return sure and delta.value / whole.value >= _NAMED_SHARE_MIN if whole.value else False


def _moved(delta: PhaseDelta) -> str:
    sign = "+" if delta.delta_s.value > 0 else "−"
    return f"{sign}{duration(abs(delta.delta_s.value))} {PHASE_TITLES.get(delta.phase, delta.phase)}"


def span(change: Change, speed: Estimate) -> str:
    """`between 1.37 and 1.60 times as fast`; where no difference was found, also how small one could hide."""
    between = f"between {ratio(speed.lo)} and {ratio(speed.hi)} times as fast"
    if change != "same":
        return between
    limit = max(1.0 / speed.lo, speed.hi)
    return f"{between}: no difference was found; one below {percent(100 * (limit - 1.0))} might not be seen"


def random_time(spared_s: tuple[float, float]) -> str:
    """A note on the time per step of each run that depends on chance."""
    return (
        f"{duration(spared_s[0])} and {duration(spared_s[1])} of the step depend on chance: page faults of the heap, "
        "and waits for cores that other processes use; the result holds either way (MALLOC_TRIM_THRESHOLD_=1000000000 keeps the heap)"
    )


def disturbances(runs: Sequence[tuple[str, Analysis]]) -> list[str]:
    """What other programs and the hypervisor took from each run, by its name."""
    busy = [(name, others) for name, a in runs if (others := a.get(CPU_OTHER_CORES) or 0.0) >= 2.5 * OTHERS_CORES]
    steal = [(name, share) for name, a in runs if (share := a.get(CPU_STEAL_SHARE) or 0.0) >= DISTURBANCE_SHARE_MIN]
    notes = []
    if busy:
        cores = ", ".join(f"{others:.2g} during {name}" for name, others in busy)
        notes.append(f"CPU cores used by other processes: {cores}")
    if steal:
        notes.append(f"CPU steal by the hypervisor: {', '.join(f'{percent(100 * s)} during {n}' for n, s in steal)}")
    return notes
