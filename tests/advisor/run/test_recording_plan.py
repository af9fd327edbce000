"""What the launcher decided reaches the recording process unchanged."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.recording_plan import RecordingPlan
from rn50_advisor.advisor.run.run_options import RunOptions

PLAN = RecordingPlan(
    argv=("python", "train.py", "--name", "a b", "ü"),
    run_folder=Path("/runs/1"),
    name="first",
    options=RunOptions(period_s=0.5, deep="auto", merge_listen="0.0.0.0:7000", stacks=False),
    ring_folder=Path("/dev/shm/rings"),
    began_ns=(1 << 62) + 1,
    began_unix_s=1.7e9,
    launcher_pid=42,
    printed_before=(10, 1 << 40),
    output_kept=True,
)


@pytest.mark.parametrize(
    "plan",
    [
        PLAN,
        replace(PLAN, run_folder=None),
        replace(PLAN, ring_folder=None),
        replace(PLAN, argv=(), name="", printed_before=(0, 0), options=RunOptions()),
        replace(PLAN, run_folder=Path("relative/ü\udcff")),  # a name that is no UTF-8
    ],
)
def test_a_plan_comes_back_from_json_as_it_was(plan: RecordingPlan) -> None:
    assert RecordingPlan.from_json(json.loads(json.dumps(plan.as_json()))) == plan


def test_a_plan_that_lacks_something_is_refused() -> None:
    document = PLAN.as_json()
    del document["launcher_pid"]
    with pytest.raises(KeyError):
        RecordingPlan.from_json(document)
