"""Parts of the budget that have a name of their own, and the part that nobody could tell apart."""

from __future__ import annotations

from collections.abc import Mapping

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.report import EPOCH_START, INPUT_OR_FORWARD, Budget


def labelled(budget: Budget, steady: Mapping[int, RankSteps], epoch_start_s: Mapping[int, float]) -> Budget:
    """The begin of epochs apart from the usual wait for input; a forward that may be a fetch under a name that says so.

    `epoch_start_s`: by rank, what the first fetch of each epoch takes beyond a usual one, per step.
    """
    unfed = {rank for rank, steps in steady.items() if not steps.fed}
    per_rank = {
        rank: _unfed(row) if rank in unfed else _epochs_apart(row, epoch_start_s.get(rank, 0.0))
        for rank, row in budget.per_rank.items()
    }
    # ranks begin their epochs together, and the others wait for the slowest
    critical = _epochs_apart(budget.critical, max(epoch_start_s.values(), default=0.0))
    return Budget(_unfed(critical) if unfed else critical, per_rank)


def _epochs_apart(row: Mapping[str, float], epoch_start_s: float) -> dict[str, float]:
    apart = min(epoch_start_s, row.get("input_wait", 0.0))
    return {**row, "input_wait": row["input_wait"] - apart, EPOCH_START: apart} if apart > 0 else dict(row)


def _unfed(row: Mapping[str, float]) -> dict[str, float]:
    return {INPUT_OR_FORWARD if phase == "forward" else phase: seconds for phase, seconds in row.items()}
