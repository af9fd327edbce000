"""CMP011, GPUs idle while the job trains on the CPU: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpu_rule_cases import gpu
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.rules.registry import all_rules
from rule_cases import META, job, rank
from rule_table import Table
from table_checks import Check, checks


def cmp011(
    idle: float | None = 2.0,
    computing: float = 0.9,
    *,
    hidden: str | None = None,
    build: str = "2.8.0+cu128",
    gap: float = 0.0,
    gpus: int = 2,
    **more: Any,
) -> Analysis:
    """Two ranks compute so long on the CPU, while so many GPUs are idle."""
    beside = GpuView(tuple(gpu(index, ranks=()) for index in range(gpus)))
    values = {} if idle is None else {"gpu.idle_beside": idle}
    variables = {} if hidden is None else {"CUDA_VISIBLE_DEVICES": hidden}
    meta = replace(META, environment={"variables": variables, "driver_cuda": "12.8"})
    own = rank(1.0, input_wait=1.0 - computing - gap, gap=gap)
    facts = {"0": {"torch": build, "cuda": None}, "1": {"torch": build, "cuda": None}}
    return job({0: own, 1: own}, values=values, gpu_view=beside, facts=facts, meta=meta, **more)


TABLE = Table(
    "CMP011",
    cmp011,
    lines={"compute": ({"computing": 0.02}, {"computing": 0.0199})},
    false_alarms={
        "no GPU idles": {"idle": 0.0},
        "there is none": {"idle": None, "gpus": 0},
        "the user hides them": {"hidden": ""},
        "in another way": {"hidden": "-1"},
    },
    severities=(({}, "high"),),
    also_fires={"one of them is shown": {"hidden": "0", "idle": 1.0}},
    not_measured={"whether they idle": ({"idle": None}, ("gpu.idle_beside",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("build", "fix"),
    [("2.8.0+cpu", "install torch with CUDA: 2.8.0+cpu has none"), ("2.8.0", "move model and batches")],
)
def test_cmp011_names_why_the_job_does_not_use_the_gpus_and_comes_first(build: str, fix: str) -> None:
    judgement = judge(cmp011(computing=0.5, gap=0.5, build=build), all_rules(), Config())
    first, second = judgement.findings
    assert (judgement.verdict.rule, first.rule, second.rule) == ("CMP011", "CMP011", "LOP004")
    assert first.title.endswith("2 idle GPUs") and first.fixes[0].title.startswith(fix)
