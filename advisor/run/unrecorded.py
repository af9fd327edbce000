"""What is written into a run that nobody records: a job that could not be started, or the end of one whose recording broke off."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.run.recording_plan import Plan
from rn50_advisor.advisor.run.run_meta import first_meta
from rn50_advisor.advisor.store.broken_off import close_broken_off
from rn50_advisor.advisor.store.run_writer import RunWriter


def note_launch_error(plan: Plan, *, message: str, exit_code: int, t_ns: int) -> None:
    assert plan.run_folder is not None
    writer = RunWriter.create(plan.run_folder, meta=first_meta(plan))
    writer.put_meta(launch_error=message, ended_ns=t_ns, exit_code=exit_code)
    writer.close()


def close_broken(plan: Plan, *, job_pid: int, reason: str, end: Mapping[str, Any]) -> None:
    """`reason`: why nothing was recorded from the last commit on."""
    assert plan.run_folder is not None
    close_broken_off(
        plan.run_folder,
        reason=reason,
        root_pid=job_pid,
        ended_ns=end["t_ns"],
        exit_code=end["exit_code"],
        exit_signal=end["signal"],
    )
