"""CMP008, slower than this hardware should be: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import pace_rule_cases as pace_jobs
from pace_rule_cases import paced
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.gpu.gpu_pace import PublishedSpeed
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.rules.registry import all_rules
from rule_cases import rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp008(ratio: float = 0.5, stalls: float = 0.0, **more: Any) -> Analysis:
    """Sixteen images in what `stalls` leave of a second, where others make so many that this is `ratio` of it."""
    observed = 16.0 / (1.0 - stalls)
    made = paced({}, own=rank(input_wait=stalls), **more)
    rates = {"images": observed / ratio, "observed_images": observed, "tuned_images": 2 * observed / ratio}
    return replace(made, values={**made.values, **{(f"reference.{name}_per_s", "job"): v for name, v in rates.items()}})


TABLE = Table(
    "CMP008",
    cmp008,
    lines={"shortfall": ({"ratio": 0.70}, {"ratio": 0.7001})},
    false_alarms={
        "as fast as others": {"ratio": 1.0},
        "stalls are not the hardware's": {"ratio": 0.9, "stalls": 0.5},
    },
    severities=(({"ratio": 0.4}, "critical"), ({}, "high"), ({"ratio": 0.7, "stalls": 0.5}, "medium")),
    best=({"ratio": 0.5}, 2.0),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp008_shows_both_tiers_and_is_never_the_cause_of_another() -> None:
    finding = found("CMP008", TABLE.job())
    assert {e.metric for e in finding.evidence} >= {"reference.images_per_s", "reference.tuned_images_per_s"}
    slow = cmp008()
    plain = {key: value for key, value in pace_jobs.cmp001().values.items() if key[0].startswith("precision.")}
    causes = {
        f.rule: f.explained_by
        for f in judge(replace(slow, values={**slow.values, **plain}), all_rules(), Config()).findings
    }
    assert causes["CMP008"] == "CMP001" and causes["CMP001"] is None


def test_cmp008_says_which_published_row_the_job_is_compared_with() -> None:
    row = PublishedSpeed("resnet50", "images", 2470, 1, "A100-SXM", "amp", True, 256, "NVIDIA's examples")
    (evidence,) = [e for e in found("CMP008", cmp008(published=row)).evidence if e.metric == "reference.images_per_s"]
    assert row.words in evidence.note
    assert "256 images per GPU" in row.words and "channels-last" in row.words and "NVIDIA's examples" in row.words


def test_cmp008_speaks_of_a_transformers_sequences() -> None:
    row = PublishedSpeed("bert-large", "sequences", 93, 1, "RTX4090", "amp", None, 28, "Lambda")
    rates = [e for e in found("CMP008", cmp008(published=row)).evidence if e.metric.startswith("reference.")]
    assert {e.unit for e in rates} == {"sequences/s"}
    assert row.words == "bert-large: 93 sequences/s on 1 × RTX4090, amp, 28 sequences per GPU (Lambda)"
