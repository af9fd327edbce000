"""What the rules on time between steps share."""

from __future__ import annotations

from advisor.core.analysis import Analysis, HotLine
from advisor.core.findings import Evidence, Saving, Where
from advisor.core.format import numbers
from rules.reading import model_of

_HARDLY = 0.3  # of what the one that spends most does: the others may log or evaluate a little, too


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


def gap_evidence(a: Analysis, spent_s: float, threshold: float, line: HotLine | None) -> tuple[Evidence, ...]:
    step = a.value("step.time_s")
    found = [
        Evidence(
            "step.gap_s",
            spent_s,
            "s",
            threshold * step,
            f"{100 * spent_s / step:.0f} % of the step, after the optimizer",
        )
    ]
    if line is not None:
        note = f"{line.file}:{line.line} in {line.function}" + (f", in {line.leaf}" if line.leaf else "")
        found.append(Evidence("stack samples", float(line.samples), "", None, note))
    return tuple(found)


def gap_saving(a: Analysis, basis: str) -> Saving:
    """From a gap of nothing, and caches that stay warm, to a quarter of today's."""
    model = model_of(a)
    best = model.step_if({(rank, "gap"): 0.0 for rank in model.own})
    worst = model.step_if({(rank, "gap"): 0.25 * model.own[rank]["gap"] for rank in model.own})
    return model.saving(model.at_best(best), worst, basis)
