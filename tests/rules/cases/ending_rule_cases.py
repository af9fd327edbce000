"""Deaths, hangs and their ranks, for jobs that ended badly or not at all. Not a test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from rn50_advisor.advisor.model.analysis import Analysis, Death, Failure, StalledRank
from rn50_advisor.advisor.model.report import StepTime, Throughput
from rule_cases import META, SCRIPT

OOM = Failure("GPU memory", "the GPU's memory ran out", "a smaller batch", 1, "CUDA out of memory.")


def stands(
    number: int, *, waits: bool = False, culprit: bool = False, phase: str = "forward", **more: Any
) -> StalledRank:
    where = {"file": SCRIPT, "line": 33, "function": "find_batch", "leaf": "read (io.py:9)", **more}
    return StalledRank(number, phase, 12, 40.0, culprit=culprit, waiting_in_collective=waits, **where)


def death(number: int | None, **more: Any) -> Death:
    given = {"exit_code": 1, "signal": None, "oom_killed": False, "phase": "backward", "step": 12, **more}
    return Death(number, 100 + (number or 0), given.pop("t_s", 10.0), **given)


def unjudged(**more: Any) -> Analysis:
    """A job of two ranks without a single steady step."""
    nothing = Throughput(None, None, None, 2)
    return replace(Analysis(META, 2, StepTime(None, None, 0, 0), nothing), **more)
