"""What passes before training is under way: until the first fetch, in the first fetch, in batches that are thrown away to go on where an
earlier run ended, and in the first step beyond a usual one.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rn50_advisor.advisor.analysis.steps.seen_training import unseen_runs
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.recording import Recording


def start_values(recording: Recording, everything: Mapping[int, RankSteps]) -> dict[tuple[str, str], float]:
    """Of the rank whose first step was done last: all others waited for it. Nothing where no rank made two steps."""
    parts = [_parts(recording, steps) for steps in everything.values() if steps.step.size > 1]
    if not parts:
        return {}
    before_s, fetch_s, skipped_s, first_s = max(parts, key=sum)
    return {
        **({("start.skipped_s", JOB): skipped_s} if skipped_s else {}),
        ("start.before_s", JOB): before_s,
        ("start.fetch_s", JOB): fetch_s,
        ("start.first_step_s", JOB): first_s,
        ("start.total_s", JOB): before_s + fetch_s + skipped_s + first_s,
    }


def _parts(recording: Recording, steps: RankSteps) -> tuple[float, float, float, float]:
    """Usual is the median of the later half: compilation may go on through several steps, but not through most."""
    later = slice(steps.step.size // 2, None)
    waits, evaluation = steps.columns["input_wait"], steps.columns["evaluation"]
    usual_wait = float(np.median((waits / steps.count)[later]))
    usual_s = float(np.median(((steps.length - evaluation) / steps.count)[later]))
    count = float(steps.count[0])
    beyond = max(0.0, float(steps.length[0] - evaluation[0]) - count * usual_s)
    fetch = min(beyond, max(0.0, float(waits[0]) - count * usual_wait))
    before = max(0.0, (int(steps.start_ns[0]) - recording.meta.started_ns) / 1e9)
    skipped = _skipped_s(recording, steps)
    return before, max(0.0, fetch - skipped), min(fetch, skipped), beyond - fetch


def _skipped_s(recording: Recording, steps: RankSteps) -> float:
    rows = unseen_runs(recording.spans.get(steps.rank), "skipped")
    rows = rows[rows["t_start_ns"] < int(steps.end_ns[0])]
    return float((rows["t_end_ns"] - rows["t_start_ns"]).sum()) / 1e9
