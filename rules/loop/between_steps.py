"""Shared by the rules on time between steps."""

from __future__ import annotations

from statistics import fmean

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Effort, Evidence, Fix, Saving, Severity, Where
from rn50_advisor.advisor.model.measures.step_measures import (
    GC_BETWEEN_S,
    INTERPRETER_LOST_S,
    STEP_BEFORE_UPDATE_S,
    STEP_EARLY_GAP_S,
    STEP_GAP_S,
    STEP_LATE_GAP_S,
    STEP_LONGEST_GAP_S,
    STEP_LONGEST_GAP_SHARE,
    STEP_RUN_DELAY_S,
    STEP_TIME_S,
)
from rn50_advisor.advisor.model.wording.quantities import duration, numbers
from rn50_advisor.rules.analysis_reading import COMPUTE, held_up_s, model_of
from rn50_advisor.rules.rule import severity

_PLACE_SHARE_MIN = 0.5  # of the time: from there on the title names this place, or collections explain it
_OTHERS_SHARE_MAX = 0.3  # of the time of the rank that spends most: the others may log or evaluate a little, too
_GROWTH_MIN = 1.5  # times from the first quarter of the steps to the last
_ONLY_NEW = "process only new values: running sums instead of all values, appended lines"
# Share of the waits for cores that goes with the work of a library's thread, at best and at worst. With 80 histograms a step, 35 % of it
# lay between the steps, and the job was 3.7 times as fast without them.
_WAITS_GONE = (1.0, 0.5)
# Share of the gap time that lies in one step. A recurring pause seen twice has about half in each.
_SINGLE_STEP_SHARE = 0.6


def hottest(a: Analysis, *, output: bool) -> tuple[HotLine | None, Where | None]:
    """The line of user code found most often between steps, and its place."""
    line = next((line for line in a.hot_lines if line.io == output), None)
    return line, Where(line.file, line.line) if line else None


def ranks_that_spend(a: Analysis, phase: str) -> tuple[int, ...]:
    """The ranks that spend time in this phase while others hardly do; empty if all do, or with a single rank."""
    spent = {rank: own.get(phase, 0.0) for rank, own in model_of(a).own.items()}
    most = max(spent.values(), default=0.0)
    found = tuple(rank for rank in sorted(spent) if spent[rank] > _OTHERS_SHARE_MAX * most)
    return found if len(found) < len(spent) else ()


def on_ranks(ranks: tuple[int, ...]) -> str:
    """The end of a title that names these ranks."""
    return f" on rank{'s' * (len(ranks) > 1)} {numbers(ranks)}" if ranks else ""


def gap_place(a: Analysis) -> str:
    """The place in which most of the time outside the model is spent."""
    before = max(a.by_rank(STEP_BEFORE_UPDATE_S).values(), default=0.0)
    total = max(a.by_rank(STEP_GAP_S).values(), default=0.0)
    return "between backward and optimizer" if before > _PLACE_SHARE_MIN * total else "between the steps"


def collecting_line(a: Analysis) -> HotLine | None:
    """The line of the loop that calls the collector, if that takes most of the time between steps."""
    line = next((line for line in a.hot_lines if line.collects), None)
    return line if line is not None and line.share >= _PLACE_SHARE_MIN else None


def collects_between_steps(a: Analysis) -> bool:
    """Collections are most of the time between steps."""
    if collecting_line(a) is not None:
        return True
    gaps, spent = a.by_rank(STEP_GAP_S), a.by_rank(GC_BETWEEN_S)
    rank = max(gaps, key=lambda r: gaps[r], default=None)
    return rank is not None and spent.get(rank, 0.0) >= _PLACE_SHARE_MIN * gaps[rank] > 0.0


def longest_gap(a: Analysis) -> float | None:
    """Seconds of the single gap that holds most of this time, if there is one: it may never recur."""
    rank = max(gaps, key=lambda rank: gaps[rank]) if (gaps := a.by_rank(STEP_GAP_S)) else None
    if rank is None or (a.get(STEP_LONGEST_GAP_SHARE, rank) or 0.0) < _SINGLE_STEP_SHARE:
        return None
    return a.get(STEP_LONGEST_GAP_S, rank)


def growing_gap(a: Analysis) -> tuple[float, float] | None:
    """Seconds of the gap in the first and in the last quarter of the steps, if it grows clearly: the work is on all that came before."""
    gaps = a.by_rank(STEP_GAP_S)
    rank = max(gaps, key=lambda r: gaps[r], default=None)
    early, late = (
        a.get(measure, rank) if rank is not None else None for measure in (STEP_EARLY_GAP_S, STEP_LATE_GAP_S)
    )
    grows = early is not None and late is not None and late >= _GROWTH_MIN * early
    return (early or 0.0, late or 0.0) if grows else None


def gap_fix(a: Analysis, title: str, where: Where | None, effort: Effort, *, change: str = "") -> Fix:
    """The fix, with what helps if the gap grows."""
    return Fix(title, _ONLY_NEW if growing_gap(a) else change, where, effort)


def gap_severity(a: Analysis, share: float) -> Severity | None:
    """The usual severity of this share; at most medium if most of it came only once."""
    level = severity(share)
    return "medium" if level in ("critical", "high") and longest_gap(a) is not None else level


def gap_evidence(a: Analysis, spent_s: float, threshold: float, line: HotLine | None) -> tuple[Evidence, ...]:
    step = a.value(STEP_TIME_S)
    where = "after the optimizer" if gap_place(a) == "between the steps" else gap_place(a)
    found = [Evidence.of(STEP_GAP_S, spent_s, threshold * step, f"{100 * spent_s / step:.0f} % of the step, {where}")]
    if (once := longest_gap(a)) is not None:
        found.append(Evidence.of(STEP_LONGEST_GAP_S, once, note="most of it in a single step", form="explains"))
    if (grown := growing_gap(a)) is not None:
        note = f"in the last quarter of the steps, {duration(grown[0])} in the first: it grows"
        found.append(Evidence.of(STEP_LATE_GAP_S, grown[1], note=note, form="explains"))
    if line is not None:
        note = line_words(line) + (f", called at {line.called_at}" if line.called_at else "")
        found.append(Evidence("stack samples", float(line.samples), "", None, note))
    return tuple(found)


def line_words(line: HotLine) -> str:
    """`/job/train.py:12 in train, in write (logging/__init__.py:1100)`; the innermost frame is left out if it is the line itself."""
    itself = f"{line.function} ({line.file.rpartition('/')[2]}:{line.line})"
    inside = f", in {line.leaf}" if line.leaf not in ("", itself) else ""
    return f"{line.file}:{line.line} in {line.function}{inside}"


def helped_by_a_thread(a: Analysis) -> bool:
    """A thread of a library's own, such as a writer of logs, held the interpreter while a training thread waited for it, and these waits
    are shorter than the time between the steps, in which it may get its work.
    """
    waits, gaps = (max(a.by_rank(measure).values(), default=0.0) for measure in (INTERPRETER_LOST_S, STEP_GAP_S))
    return any(holder.function and holder.where is None for holder in a.holders) and waits <= gaps


def gap_saving(
    a: Analysis, basis: str, left: tuple[float, float] = (0.0, 0.25), *, with_thread: bool = False
) -> Saving:
    """Gain of a gap of which so much is left (at best, at worst), with warm caches at best; no certain gain if most came once.

    `with_thread`: what runs in the gap gives work to a thread beside the steps. Without it they do not wait for cores either: at worst
    half as long.
    """
    model = model_of(a)
    fast, slow = ({(rank, "gap"): share * model.own[rank]["gap"] for rank in model.own} for share in left)
    if with_thread:
        alone, crowded = (_without_waits(a, share) for share in _WAITS_GONE)
        fast, slow = {**alone, **fast}, {**crowded, **slow}
    best, worst = model.step_if({**_in_step(a), **fast}), model.step_if(slow)
    if longest_gap(a) is not None:
        worst, basis = model.step_s, f"{basis}; observed once, so it may not recur"
    return model.saving(model.at_best(best), worst, basis)


def _without_waits(a: Analysis, share: float) -> dict[tuple[int, str], float]:
    """Compute of each rank without this share of the time in which it waits for cores."""
    model, waits = model_of(a), held_up_s(a)
    kept = {rank: max(0.0, 1.0 - share * waits.get(rank, 0.0) / max(model.own_s(rank), 1e-9)) for rank in model.own}
    return {(rank, phase): kept[rank] * own[phase] for rank, own in model.own.items() for phase in COMPUTE}


def _in_step(a: Analysis) -> dict[tuple[int, str], float]:
    """Compute of one host's ranks if none of them works while the others wait: they then wait equally long for cores.

    A rank that has waited for others finds its core taken. With 80 ms between the steps of one of two ranks on two cores, the other waited
    27 ms of a step for a core and the first 11; without them, both waited 19.
    """
    model, delays = model_of(a), a.by_rank(STEP_RUN_DELAY_S)
    if not ranks_that_spend(a, "gap") or model.hosts > 1 or delays.keys() != model.own.keys():
        return {}
    each_s = fmean(delays.values())
    changes = {}
    for rank, own in model.own.items():
        compute_s = sum(own[phase] for phase in COMPUTE)
        for phase in COMPUTE:
            changes[rank, phase] = own[phase] * max(0.0, 1.0 + (each_s - delays[rank]) / max(compute_s, 1e-9))
    return changes
