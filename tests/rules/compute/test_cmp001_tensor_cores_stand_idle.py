"""CMP001, tensor cores are idle: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pace_rule_cases as pace_jobs
from gpu_rule_cases import gpu
from rn50_advisor.advisor.model.findings import Clear, Finding
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuView
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules.registry import all_rules
from rule_runs import RULES, all_words, found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "CMP001",
    pace_jobs.cmp001,
    lines={
        "capability": ({"capability": 7.0}, {"capability": 6.1}),
        "eligible": ({"paced_s": 0.6999}, {"paced_s": 0.7001}),
        "tensor": ({"tensor": 0.0499}, {"tensor": 0.05}),
    },
    false_alarms={
        "TF32 is on": {"tf32": 1.0},
        "autocast is on": {"half": 1.0},
        "the host sets the pace": {"paced_s": 0.9},
        "kernels are no convolutions and matrix products": {"eligible": 0.1},
    },
    severities=(({}, "critical"), ({"paced_s": 0.45}, "high"), ({"paced_s": 0.65}, "medium")),
    best=({"loads": 2.0}, 2.0),
    also_fires={"before Ampere": {"capability": 7.5}, "as the profiler window shows": {"tensor": 0.0, "eligible": 0.8}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("capability", "words", "absent"), [(8.0, "bfloat16", "GradScaler"), (7.5, "GradScaler", "bfloat16")]
)
def test_cmp001_advises_what_the_gpu_has(capability: float, words: str, absent: str) -> None:
    finding = found("CMP001", TABLE.job(capability=capability))
    assert words in all_words(finding) and absent not in all_words(finding)


@pytest.mark.parametrize(
    ("name", "says"), [("NVIDIA GeForce GTX 1660 Ti", Clear), ("NVIDIA T1000", Clear), ("Tesla T4", Finding)]
)
def test_cmp001_stays_silent_on_boards_without_tensor_cores(name: str, says: type) -> None:
    view = GpuView(tuple(replace(gpu(n), name=name) for n in (0, 1)))
    analysis = replace(pace_jobs.cmp001(capability=7.5), gpu_view=view)
    assert isinstance(run_rule(RULES["CMP001"], analysis, Config()), says)


def test_cmp001_stays_silent_if_one_rank_uses_autocast() -> None:
    plain = pace_jobs.cmp001()
    values = {**plain.values, ("precision.half", 1): 1.0}
    assert run_rule(RULES["CMP001"], replace(plain, values=values), Config()) == Clear("CMP001")


def test_cmp001_promises_only_what_eligible_kernels_give() -> None:
    whole, half = found("CMP001", TABLE.job()).saving, found("CMP001", TABLE.job(eligible=0.5)).saving
    assert whole is not None and half is not None
    assert half.speedup[1] < whole.speedup[1] and half.speedup[0] < whole.speedup[0]


def test_cmp001_explains_the_switch_of_tf32() -> None:
    plain = pace_jobs.cmp009(half=0.0, tf32=0.0)
    findings = {f.rule: f.explained_by for f in judge(plain, all_rules(), Config()).findings}
    assert findings == {"CMP001": None, "CMP009": "CMP001"}


def test_cmp001_costs_what_it_is_expected_to_spare() -> None:
    """Not the least of it: a finding beside it that costs more than that, but less than what is expected, is no verdict."""
    finding = found("CMP001", TABLE.job())
    assert finding.saving is not None
    assert finding.seconds_per_step == pytest.approx(sum(finding.saving.seconds_per_step) / 2)
