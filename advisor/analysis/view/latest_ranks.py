"""Who was late when: of each slice of the run, the rank that kept the others waiting the most."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.steps.attribution import CLEAR_MARGIN, Account, waiting
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps


def late_ranks(
    accounts: Account | None, steady: Mapping[int, RankSteps], edges_ns: NDArray[np.float64]
) -> dict[int, tuple[int, float]]:
    """By slice, (rank, seconds of a step that the others waited for it); slices in which nobody was late are left out."""
    if accounts is None or len(accounts.turns) < 2:
        return {}
    ranks = sorted(accounts.turns)
    # the first turn begins with what a step before it left, which is not known
    turns = np.stack([accounts.turns[rank] for rank in ranks])[:, 1:]
    ends = steady[ranks[0]].end_ns[accounts.rows[ranks[0]]][1:]
    slot = np.clip(np.searchsorted(edges_ns, ends, side="left") - 1, 0, edges_ns.size - 2)
    kept = np.zeros((len(ranks), edges_ns.size - 1))
    np.add.at(kept, (turns.argmax(axis=0), slot), waiting(turns))
    kept /= np.maximum(np.bincount(slot, minlength=edges_ns.size - 1), 1)
    worst = kept.argmax(axis=0)
    return {
        int(i): (ranks[worst[i]], float(kept[worst[i], i]))
        for i in np.flatnonzero(kept.max(axis=0) >= CLEAR_MARGIN * accounts.step_s)
    }
