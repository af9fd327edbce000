"""Facts about a run that are known before it starts."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.run.launch.job_environment import inherited_environment
from rn50_advisor.advisor.run.machine_results import known_machine, known_sweeps
from rn50_advisor.advisor.run.recording_plan import RecordingPlan
from rn50_advisor.advisor.run.rings.own_folder import start_ticks
from rn50_advisor.advisor.store.database import close_broken_off
from rn50_advisor.advisor.store.secrets.masking import redact_argv, redact_environment
from rn50_advisor.probes.documents.machine_documents import MachineFacts
from rn50_advisor.probes.host.process.process_tree import boot_offset_ns
from rn50_advisor.probes.host.procfs import CLOCK_TICKS


def first_meta(plan: RecordingPlan) -> dict[str, Any]:
    """The first rows of the table `meta`."""
    assert plan.run_folder is not None
    return {
        "name": plan.name or plan.run_folder.name,
        "argv": redact_argv(plan.argv),
        "cwd": _working_directory(),
        "host": os.uname().nodename,
        "started_unix_s": plan.began_unix_s,
        "started_ns": plan.began_ns,
        "environment": kept_environment(plan.run_folder),
        "output_kept": plan.output_kept,
    }


def kept_environment(run_folder: Path | None) -> MachineFacts:
    """Variables, and what a triage and a benchmark have found of the machine, where they lie beside the runs."""
    variables = {os.fsdecode(name): os.fsdecode(value) for name, value in inherited_environment().items()}
    kept: MachineFacts = {"variables": redact_environment(variables)}
    if run_folder is not None:
        if triage := known_machine(run_folder.parent):
            kept["triage"] = triage
        if bench := known_sweeps(run_folder.parent):
            kept["bench"] = bench
    return kept


def _working_directory() -> str:
    with contextlib.suppress(OSError):
        return str(Path.cwd())
    return "(deleted)"


def startup_s(plan: RecordingPlan) -> float:
    """Returns the seconds from the start of the launcher to the start of the job; 0.0 if unknown."""
    ticks = start_ticks(plan.launcher_pid)
    if ticks is None:
        return 0.0
    started_ns = ticks * 1e9 / CLOCK_TICKS + boot_offset_ns()
    return max(0.0, (plan.began_ns - started_ns) / 1e9)


def close_broken(plan: RecordingPlan, *, job_pid: int, reason: str, end: Mapping[str, Any]) -> None:
    """Notes the end of a job whose recording process is gone. `reason`: why nothing was recorded from the last commit on."""
    assert plan.run_folder is not None
    close_broken_off(
        plan.run_folder,
        reason=reason,
        root_pid=job_pid,
        ended_ns=end["t_ns"],
        exit_code=end["exit_code"],
        exit_signal=end["signal"],
    )
