"""What the rules on time between steps share."""

from __future__ import annotations

from statistics import fmean

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Evidence, Saving, Severity, Where
from rn50_advisor.advisor.model.wording.quantities import numbers
from rn50_advisor.rules.analysis_reading import COMPUTE, model_of
from rn50_advisor.rules.rule import severity

_MOSTLY = 0.5  # of the time: there the title says it is
_HARDLY = 0.3  # of what the one that spends most does: the others may log or evaluate a little, too
# Of the time between steps, in one of them. What comes back has, seen twice, about half in each.
_ONCE = 0.6


def hottest(a: Analysis, *, output: bool) -> tuple[HotLine | None, Where | None]:
    """The line of user code found most often between steps, and its place."""
    line = next((line for line in a.hot_lines if line.io == output), None)
    return line, Where(line.file, line.line) if line else None


def ranks_that_spend(a: Analysis, phase: str) -> tuple[int, ...]:
    """Those that spend the time of this phase where the others hardly do; empty where all do, or there is but one rank."""
    spent = {rank: own.get(phase, 0.0) for rank, own in model_of(a).own.items()}
    most = max(spent.values(), default=0.0)
    found = tuple(rank for rank in sorted(spent) if spent[rank] > _HARDLY * most)
    return found if len(found) < len(spent) else ()


def on_ranks(ranks: tuple[int, ...]) -> str:
    """What a title ends with."""
    return f" on rank{'s' * (len(ranks) > 1)} {numbers(ranks)}" if ranks else ""


def where_it_stands(a: Analysis) -> str:
    """Where most of the time outside of the model is spent."""
    before = max(a.by_rank("step.before_update_s").values(), default=0.0)
    total = max(a.by_rank("step.gap_s").values(), default=0.0)
    return "between backward and optimizer" if before > _MOSTLY * total else "between the steps"


def longest_gap(a: Analysis) -> float | None:
    """The seconds of the one step in which most of this time passed, where it came but once: it may never come back."""
    rank = max(gaps, key=lambda rank: gaps[rank]) if (gaps := a.by_rank("step.gap_s")) else None
    if rank is None or (a.get("step.longest_gap_share", rank) or 0.0) < _ONCE:
        return None
    return a.get("step.longest_gap_s", rank)


def gap_severity(a: Analysis, share: float) -> Severity | None:
    """As of any share of the step; no more than medium where it came but once."""
    level = severity(share)
    return "medium" if level in ("critical", "high") and longest_gap(a) is not None else level


def gap_evidence(a: Analysis, spent_s: float, threshold: float, line: HotLine | None) -> tuple[Evidence, ...]:
    step = a.value("step.time_s")
    where = "after the optimizer" if where_it_stands(a) == "between the steps" else where_it_stands(a)
    found = [
        Evidence(
            "step.gap_s",
            spent_s,
            "s",
            threshold * step,
            f"{100 * spent_s / step:.0f} % of the step, {where}",
        )
    ]
    if (once := longest_gap(a)) is not None:
        found.append(Evidence("step.longest_gap_s", once, "s", None, "most of it at once, in a single step"))
    if line is not None:
        note = f"{line.file}:{line.line} in {line.function}" + (f", in {line.leaf}" if line.leaf else "")
        found.append(Evidence("stack samples", float(line.samples), "", None, note))
    return tuple(found)


def gap_saving(a: Analysis, basis: str) -> Saving:
    """From a gap of nothing, and caches that stay warm, to a quarter of today's; to none where it came but once."""
    model = model_of(a)
    best = model.step_if({**_in_step(a), **{(rank, "gap"): 0.0 for rank in model.own}})
    worst = model.step_if({(rank, "gap"): 0.25 * model.own[rank]["gap"] for rank in model.own})
    if longest_gap(a) is not None:
        worst, basis = model.step_s, f"{basis}; seen once, it may not come back"
    return model.saving(model.at_best(best), worst, basis)


def _in_step(a: Analysis) -> dict[tuple[int, str], float]:
    """What the ranks of one host compute once none of them works while the others wait: they wait for cores by turns, each as long.

    One that comes out of the wait finds its core taken. With 80 ms between the steps of one of two ranks on two cores, the other waited
    27 ms of a step for a core, and the one 11; without, both 19.
    """
    model, delays = model_of(a), a.by_rank("step.run_delay_s")
    if not ranks_that_spend(a, "gap") or model.hosts > 1 or delays.keys() != model.own.keys():
        return {}
    each_s = fmean(delays.values())
    changes = {}
    for rank, own in model.own.items():
        compute_s = sum(own[phase] for phase in COMPUTE)
        for phase in COMPUTE:
            changes[rank, phase] = own[phase] * max(0.0, 1.0 + (each_s - delays[rank]) / max(compute_s, 1e-9))
    return changes
