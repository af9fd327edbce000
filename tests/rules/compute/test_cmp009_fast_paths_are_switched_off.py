"""CMP009, fast paths are switched off: its table and its advice."""

from __future__ import annotations

import pytest

import pace_rule_cases as pace_jobs
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "CMP009",
    pace_jobs.cmp009,
    lines={
        "compute": ({"paced_s": 0.6999}, {"paced_s": 0.7001}),
        "optimizer": (
            {"benchmark": True, "fused": False, "optimizer": 0.05},
            {"benchmark": True, "fused": False, "optimizer": 0.0499},
        ),
        "fixed": ({"usual": 0.95}, {"usual": 0.9499}),
    },
    false_alarms={
        "all is on": {"benchmark": True},
        "pictures of many sizes": {"rank_facts": {"conv": {"shape": [8, 3, 512, 700], "varies": True}}},
        "deterministic, as asked": {"rank_facts": {"deterministic": True}},
        "a model without convolutions": {"rank_facts": {"conv": {}, "model": {"layers": {"Linear": 48}}}},
        "a compiled one without them": {
            "rank_facts": {"conv": {}, "optimizer": {"class": "SGD", "convolutions": {"weights": 0}}}
        },
        "an optimizer without a fused form": {
            "benchmark": True,
            "fused": False,
            "optimizer": 0.3,
            "rank_facts": {"optimizer": {"class": "LBFGS"}},
        },
        "one whose fused form came later": {
            "benchmark": True,
            "fused": False,
            "optimizer": 0.3,
            "rank_facts": {"torch": "2.2.2+cu121"},
        },
    },
    severities=(({}, "low"),),
    also_fires={"TF32": {"benchmark": True, "half": 0.0, "tf32": 0.0}},
    not_measured={
        "with what precision it computes": ({"benchmark": True, "half": None, "tf32": 0.0}, ("precision.half",)),
        "whether TF32 is on": ({"benchmark": True, "half": 0.0, "tf32": None}, ("precision.tf32",)),
        "cuDNN's switch": ({"rank_facts": {"cuda": {}}}, ("cudnn.benchmark",)),
        "its convolutions": ({"rank_facts": {"conv": {}}}, ("conv",)),
        "the sizes of its batches": ({"usual": None}, ("batch.usual_share",)),
        "an optimizer that takes its time": (
            {"benchmark": True, "optimizer": 0.3, "rank_facts": {"optimizer": {}}},
            ("optimizer",),
        ),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp009_lists_all_that_is_off() -> None:
    finding = found("CMP009", TABLE.job(fused=False, optimizer=0.1))
    assert finding.title == "Fast paths switched off: cudnn.benchmark, fused optimizer" and len(finding.fixes) == 2
