"""Long runs as retention leaves them: the latest steps whole, the older ones folded. Not a test."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from recordings import folded
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.step_folding import COLUMNS

SLICE = 200  # rows that retention folds at once
KEPT = 0.03  # share of them: outliers that it does not fold


def aged(made: Recording, whole: int) -> Recording:
    """Folds all but the latest `whole` steps as retention does: windows of a second, and outliers between them."""
    steps = {}
    for rank, rows in made.steps.items():
        size = rows.size - whole
        older = [rows[n : min(n + SLICE, size)] for n in range(0, size, SLICE)]
        folds = [folded(part, 0, part.size, outlier_share=KEPT) for part in older]
        steps[rank] = np.concatenate([*folds, rows[list(COLUMNS)][size:]])
    return replace(made, steps=steps)
