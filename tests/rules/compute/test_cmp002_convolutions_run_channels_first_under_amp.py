"""CMP002, convolutions run channels-first under AMP: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from pace_rule_cases import copies, paced
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites
from rule_cases import SCRIPT
from rule_runs import all_words, found
from rule_table import Table
from table_checks import Check, checks


def cmp002(
    first: float = 1.0,
    half: str | None = "bfloat16",
    capability: float = 8.0,
    paced_s: float = 0.0,
    *,
    weight: str = "float32",
    convolutions: int = 53,
    norm: str = "BatchNorm2d",
    convolving: float | None = None,
    **more: Any,
) -> Analysis:
    values = {
        "layout.channels_first": first,
        "precision.half": 1.0,
        "precision.capability": capability,
        "gpu.host_paced_s": paced_s,
        "kernel.conv_share": convolving,
    }
    conv = {"shape": [128, 3, 224, 224], "autocast": half, "weight": weight}
    facts = {"model": {"layers": {"Conv2d": convolutions, norm: 53}}, "conv": conv}
    return paced(values, **{"rank_facts": facts, "call_sites": CallSites((), copies()), **more})


TABLE = Table(
    "CMP002",
    cmp002,
    lines={
        "capability": ({"capability": 7.0}, {"capability": 6.1}),
        "compute": ({"paced_s": 0.6999}, {"paced_s": 0.7001}),
        "convolutions": ({"convolutions": 4}, {"convolutions": 3}),
    },
    false_alarms={
        "one of the two is channels-last": {"first": 0.0},
        "convolutions in single precision, other layers in half": {"half": None},
        "a net with GroupNorm": {"norm": "GroupNorm"},
        "a transformer that cuts patches": {"convolutions": 1},
        "kernels that are hardly convolutions": {"convolving": 0.1},
    },
    severities=(({}, "medium"), ({"paced_s": 0.65}, "low")),
    where=Where(SCRIPT, 61),
    best=({"loads": 1.25}, 1.25),
    also_fires={
        "weights in half precision": {"half": None, "weight": "float16"},
        "a model whose layers were not counted": {"rank_facts": {"conv": {"autocast": "float16"}}},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp002_names_the_shape_and_the_line_of_the_copy() -> None:
    finding = found("CMP002", TABLE.job())
    assert (
        "[128, 3, 224, 224]" in all_words(finding)
        and finding.fixes[0].where is not None
        and finding.fixes[0].where.line == 61
    )
