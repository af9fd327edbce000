"""GPU007, the GPU reports errors: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

import gpu_rule_cases as gpu_jobs
from ending_rule_cases import death, stands
from rn50_advisor.advisor.model.analysis import Stall
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

HANGS = (Stall(50.0, 40.0, False, 1.0, 1.2, (stands(1, culprit=True),)),)


TABLE = Table(
    "GPU007",
    gpu_jobs.gpu007,
    lines={},
    false_alarms={
        "a program that went wrong": {"xids": (13, 31, 43, 45)},
        "nothing": {"xids": (), "uncorrected_errors": 0, "row_remap_pending": 0, "recovery_action": 0, "lost": 0},
        "a GPU that counts no memory errors": {
            "xids": (),
            "ecc": False,
            "blind": {"gpu.uncorrected_errors": 1},
        },
    },
    severities=(
        ({}, "high"),
        ({"lost": 1}, "critical"),
        ({"xids": (63,)}, "medium"),
        ({"xids": (), "row_remap_pending": 1}, "medium"),
        ({"xids": (), "row_remap_failed": 1}, "high"),
        ({"xids": (), "uncorrected_errors": 2}, "high"),
        ({"xids": (), "recovery_action": 1}, "high"),
        ({"deaths": (death(1),)}, "critical"),
    ),
    ranks=(1,),
    also_fires={
        "an unlisted Xid": {"xids": (160,)},
        "and the job hangs": {"stalls": HANGS},
        "before any step": {"steady": 0},
    },
    not_measured={
        "Xids, though memory errors are counted": (
            {"xids": (), "blind": {"gpu.hardware_xids": 1}},
            ("gpu.hardware_xids",),
        ),
        "memory errors, though Xids are known": (
            {"xids": (), "blind": {"gpu.uncorrected_errors": 1}},
            ("gpu.uncorrected_errors",),
        ),
        "a GPU that fell silent": ({"xids": (), "blind": {"gpu.errors_watched": 0}}, ("gpu.errors_watched",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"xids": (48,)}, "double-bit memory error"),
        ({"xids": (160,)}, "catalogue"),
        ({"xids": (), "recovery_action": 4}, "drain and reset"),
        ({"xids": (), "row_remap_failed": 1}, "remap failed"),
        ({"xids": (), "uncorrected_errors": 3}, "memory errors in the run"),
    ],
)
def test_gpu007_says_what_the_driver_reported(values: dict[str, Any], words: str) -> None:
    texts = [f"{e.value} {e.note}" for e in found("GPU007", TABLE.job(**values)).evidence]
    assert any(words in text for text in texts)


def test_gpu007_names_the_lost_gpu_and_does_not_advise_to_reset_it() -> None:
    finding = found("GPU007", TABLE.job(xids=(79,), lost=1))
    assert finding.title == "Lost by the driver: GPU 1" and finding.urgent
    assert "reboot" in finding.fixes[0].title


def test_gpu007_leaves_a_job_that_was_stopped_to_its_user() -> None:
    stopped = tuple(death(n, exit_code=None, signal=2, first=n == 0) for n in (0, 1))
    assert not found("GPU007", TABLE.job(deaths=stopped)).fatal
