"""A line for each rank: where it is, since when, how fast its latest steps were."""

from __future__ import annotations

import signal
from collections.abc import Mapping

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.attribution import Account
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.analysis.view.node_strips import host_by_rank
from rn50_advisor.advisor.model.recording import NODE_PIDS, Recording
from rn50_advisor.advisor.model.report import RankStrip

_RECENT_STEPS = 20  # the step time a rank's strip shows


def rank_strips(
    recording: Recording, everything: Mapping[int, RankSteps], accounts: Account | None
) -> tuple[RankStrip, ...]:
    strips, hosts = [], host_by_rank(recording)
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        phase, step, since = recording.positions.get(rank, ("start", 0, recording.meta.last_ns))
        steps = everything.get(rank)
        alive = process.ended_ns is None and recording.meta.ended_ns is None
        strips.append(
            RankStrip(
                rank=rank,
                pid=process.pid % NODE_PIDS,
                alive=alive,
                phase=phase if alive else _ending(process.exit_code, process.exit_signal),
                phase_for_s=max(0.0, (recording.meta.last_ns - since) / 1e9) if alive else 0.0,
                step=step,
                step_s=float(np.median((steps.length / steps.count)[-_RECENT_STEPS:])) if steps else None,
                late_share=accounts.late_share.get(rank) if accounts else None,
                host=hosts.get(rank, ""),
            )
        )
    return tuple(strips)


def _ending(code: int | None, number: int | None) -> str:
    if number:
        try:
            return f"killed by {signal.Signals(number).name}"
        except ValueError:
            return f"killed by signal {number}"
    return "ended" if not code else f"exit {code}"
