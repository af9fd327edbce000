"""Measures the share of the training that the recorded steps represent (see `model.seen_share`), and the start-up time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps, tails
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import (
    START_BEFORE_S,
    START_FETCH_S,
    START_FIRST_STEP_S,
    START_SKIPPED_S,
    START_TOTAL_S,
)
from rn50_advisor.advisor.model.recording import Recording, Table
from rn50_advisor.advisor.model.seen_share import Coverage
from rn50_advisor.probes.rank.layout import SPAN_CODE

_ASIDE = tuple(SPAN_CODE[label] for label in ("evaluation", "checkpoint"))


def coverage_of(recording: Recording, everything: Mapping[int, RankSteps]) -> Coverage | None:
    """The training that was seen, on the rank with the highest share; None if no step was seen."""
    after = tails(recording)
    each = [_of_rank(recording, steps, after.get(rank)) for rank, steps in everything.items()]
    return max(each, key=lambda c: c.seen_s / max(c.total_s, 1e-9), default=None)


def unseen_runs(spans: Table | None, label: str = "unseen") -> Table:
    """One row per run of unseen batches. A run is reported repeatedly while it grows; its last report counts."""
    if spans is None:
        return np.empty(0, [("t_start_ns", np.int64), ("t_end_ns", np.int64), ("count", np.int64)])
    rows = np.sort(spans[spans["label"] == SPAN_CODE[label]], order=["t_start_ns", "count"])
    last = np.append(np.diff(rows["t_start_ns"]) != 0, True)[: rows.size]
    found: Table = rows[last]
    return found


def _of_rank(recording: Recording, steps: RankSteps, tail: RankSteps | None) -> Coverage:
    spans = recording.spans.get(steps.rank)
    begin, first_end, last_end = int(steps.start_ns[0]), int(steps.end_ns[0]), int(steps.end_ns.max())
    runs = unseen_runs(spans)
    runs = runs[runs["t_start_ns"] >= first_end]
    unseen_s = float((runs["t_end_ns"] - runs["t_start_ns"]).sum()) / 1e9
    if tail is not None:
        end, after_s = int(tail.end_ns.max()), float(tail.columns["gap"].sum())
    else:  # the rank is running or was killed
        ended = [p.ended_ns for p in recording.processes if p.role == "rank" and p.rank == steps.rank and p.ended_ns]
        end = max(ended, default=recording.meta.last_ns)
        known = [last_end, *runs["t_end_ns"].tolist()]
        if spans is not None:
            known += spans["t_end_ns"][np.isin(spans["label"], _ASIDE)].tolist()
        after_s = max(0.0, (end - max(known)) / 1e9) if ended else 0.0
    return Coverage(
        steps=int(steps.count.sum()),
        total_s=max(0.0, (max(end, last_end) - begin) / 1e9),
        unseen_batches=int(runs["count"].sum()),
        unseen_s=unseen_s,
        after_s=after_s,
    )


# Start-up time: until the first fetch, in the first fetch, in batches skipped to resume an earlier run, and the excess of the first step
# over a usual one.
def start_values(recording: Recording, everything: Mapping[int, RankSteps]) -> Measured:
    """Start-up measures of the rank with the longest start-up, which all others waited for. Empty if no rank made two steps."""
    parts = [_parts(recording, steps) for steps in everything.values() if steps.step.size > 1 and not steps.traced]
    found = Measured()
    if parts:
        before_s, fetch_s, skipped_s, first_s = max(parts, key=sum)
        found[START_BEFORE_S, JOB] = before_s
        found[START_FETCH_S, JOB] = fetch_s
        found[START_FIRST_STEP_S, JOB] = first_s
        found[START_TOTAL_S, JOB] = before_s + fetch_s + skipped_s + first_s
        if skipped_s:
            found[START_SKIPPED_S, JOB] = skipped_s
    return found


def _parts(recording: Recording, steps: RankSteps) -> tuple[float, float, float, float]:
    """Seconds (before the first fetch, in it, in skipped batches, of the first step beyond a usual one).

    Usual values are medians of the later half: compilation may last several steps, but not most of them.
    """
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
