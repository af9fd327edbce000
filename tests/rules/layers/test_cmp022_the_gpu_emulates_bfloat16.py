"""CMP022, the GPU emulates bfloat16: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gpu_rule_cases import gpu
from pace_rule_cases import paced
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_runs import RULES, all_words, found, judged
from rule_table import Table
from table_checks import Check, checks


def cmp022(
    brain: float | None = 1.0,
    capability: float | None = 7.5,
    paced_s: float = 0.0,
    *,
    eligible: float | None = None,
    name: str = "Tesla T4",
    **more: object,
) -> Analysis:
    """bfloat16 on a T4; forward and backward take 0.9 s, of these `paced_s` at the pace of launches."""
    values = {
        "precision.bf16": brain,
        "precision.half": 1.0,
        "precision.capability": capability,
        "gpu.host_paced_s": paced_s,
        "kernel.eligible_share": eligible,
    }
    made = paced(values, **more)
    return replace(made, gpu_view=GpuView(tuple(replace(gpu(n), name=name) for n in (0, 1))))


TABLE = Table(
    "CMP022",
    cmp022,
    lines={
        "capability": ({"capability": 7.5}, {"capability": 8.0}),
        "eligible": ({"paced_s": 0.6999}, {"paced_s": 0.7001}),
    },
    false_alarms={
        "float16": {"brain": 0.0},
        "the host sets the pace": {"paced_s": 0.9},
        "kernels are no convolutions and matrix products": {"eligible": 0.1},
    },
    severities=(({}, "critical"), ({"paced_s": 0.45}, "high"), ({"paced_s": 0.65}, "medium")),
    best=({"loads": 2.0}, 2.0),
    also_fires={"on a V100": {"capability": 7.0}, "on a P100": {"capability": 6.0}},
    not_measured={
        "what half precision it is": ({"brain": None}, ("precision.bf16",)),
        "the GPU's capability": ({"capability": None}, ("precision.capability",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("capability", "name", "words", "absent"),
    [
        (7.5, "Tesla T4", "GradScaler", "float32"),
        (7.0, "Tesla V100-SXM2-16GB", "GradScaler", "float32"),
        (6.0, "Tesla P100-PCIE-16GB", "float32", "GradScaler"),
        (7.5, "NVIDIA GeForce GTX 1660 Ti", "float32", "GradScaler"),
    ],
)
def test_cmp022_advises_what_the_gpu_has(capability: float, name: str, words: str, absent: str) -> None:
    finding = found("CMP022", cmp022(capability=capability, name=name))
    assert words in all_words(finding) and absent not in all_words(finding)
    assert (finding.saving is not None) == (words == "GradScaler"), "no gain is known without tensor cores"


def test_cmp022_stays_silent_if_one_rank_computes_in_something_else() -> None:
    mixed = cmp022()
    values = {**mixed.values, ("precision.bf16", 1): 0.0}
    assert run_rule(RULES["CMP022"], replace(mixed, values=values), Config()) == Clear("CMP022")


def test_cmp022_promises_only_what_eligible_kernels_give() -> None:
    whole, half = found("CMP022", cmp022()).saving, found("CMP022", cmp022(eligible=0.5)).saving
    assert whole is not None and half is not None
    assert half.speedup[1] < whole.speedup[1] and half.speedup[0] < whole.speedup[0]


def test_cmp022_comes_before_the_layout_of_convolutions() -> None:
    made = cmp022()
    conv = {"shape": [128, 3, 224, 224], "autocast": "bfloat16", "weight": "float32"}
    facts = {"model": {"layers": {"Conv2d": 53, "BatchNorm2d": 53}}, "conv": conv}
    values = {**made.values, ("layout.channels_first", 0): 1.0, ("layout.channels_first", 1): 1.0}
    findings = judged(replace(made, values=values, facts={"0": facts, "1": facts})).findings
    causes = {finding.rule: finding.explained_by for finding in findings}
    assert causes["CMP022"] is None and causes["CMP002"] == "CMP022"
