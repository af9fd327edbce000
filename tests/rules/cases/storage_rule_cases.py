"""Jobs whose storage is re-read, saturated or throttled while they wait for it. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rule_cases import dat002
from rule_runs import RULES
from rule_table import Given

STARVED: dict[str, tuple[Given, Given]] = {
    "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
    "blocked": ({"blocked": 0.5}, {"blocked": 0.499}),
    "bytes_per_sample": ({"read_mb": 0.004096}, {"read_mb": 0.004095}),
}
NOT_STARVED: dict[str, Given] = {
    "the job does not wait": {"wait": 0.01},
    "a sleep or a lock in the dataset reads nothing": {"read_mb": 0.0},
    "computing, not blocked": {"blocked": 0.2},
}
DATA = DataMount("/data", "ext4", "/dev/sdb", False, "sdb")
NFS = DataMount("/data", "nfs4", "server:/x", True, None)
STORAGE = ("DAT002", "DAT010", "DSK001", "DSK002")


def _reads(values: dict[str, float | None], job: dict[str, Any]) -> Analysis:
    """Both ranks of a second's step wait `wait` for what two workers each are blocked on for 0.8 of a second."""
    found = dat002(**{"storage": DATA, **job})
    plain = {(name, "job"): value for name, value in values.items() if value is not None}
    return replace(found, values={**found.values, **plain})


def dat010(
    again: float = 0.9,
    later: float = 1.5,
    *,
    epoch: float = 800.0,
    host: float | None = 16_000.0,
    group: float | None = 300.0,
    later_reads: float = 1.0,
    **job: Any,
) -> Analysis:
    values = {
        "storage.reread_share": again,
        "storage.later_epochs": later,
        "storage.epoch_mb": epoch,
        "storage.later_read_share": later_reads,
        "storage.host_room_mb": host,
        "storage.group_room_mb": group,
    }
    return _reads(values, job)


def dsk001(busy: float = 0.99, queue: float = 5.0, *, own: float | None = 1.0, **job: Any) -> Analysis:
    values = {
        "storage.busy_share": busy,
        "storage.queue": queue,
        "storage.read_s": 0.02,
        "storage.read_mb_s": 60.0,
        "storage.job_share": own,
    }
    return _reads(values, job)


def dsk002(
    rate: float = 14.0,
    limit: float | None = 14.0,
    *,
    reads: float = 230.0,
    reads_limit: float | None = None,
    spread: float | None = None,
    reads_spread: float | None = None,
    device: float = 1.0,
    **job: Any,
) -> Analysis:
    """Limits in a control group unless they are None; `spread`: how even the seconds are."""
    values = {
        "storage.read_mb_s": 0.9 * rate,  # the run's ends, where nothing is read, count in the mean
        "storage.reads_s": 0.9 * reads,
        "storage.usual_mb_s": rate,
        "storage.usual_reads_s": reads,
        "storage.limit_mb_s": limit,
        "storage.limit_reads_s": reads_limit,
        "storage.mb_spread": spread,
        "storage.reads_spread": reads_spread,
        "storage.device_share": device,
        "storage.seconds": 20.0,
        **{f"storage.{name}": job.pop(name, None) for name in ("volume_exceeded_share", "instance_exceeded_share")},
        **{f"storage.{name}": job.pop(name, None) for name in ("link_exceeded_s", "job_share")},
    }
    return _reads(values, job)


def causes(analysis: Analysis) -> dict[str, str | None]:
    judgement = judge(analysis, (RULES[name] for name in STORAGE), Config())
    return {finding.rule: finding.explained_by for finding in judgement.findings}


def notes(finding: Finding) -> dict[str, str]:
    return {row.metric: row.note for row in finding.evidence}
