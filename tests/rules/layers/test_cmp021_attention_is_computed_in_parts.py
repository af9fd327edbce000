"""CMP021, attention is computed in parts: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis, AttentionLines
from rn50_advisor.advisor.model.findings import Clear, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import job, rank
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks

CUDA = {"cuda": {"devices": 1}}


def cmp021(
    spends: float = 0.2,
    *,
    kernels: float | None = None,
    samples: int = 80,
    by: Any = "own",
    seen: bool = True,
    **more: Any,
) -> Analysis:
    """A rank whose forward pass takes so many seconds of its second for attention in parts, or whose GPU so many in `kernels`."""
    kept = {name: more.pop(name) for name in ("keeps_weights", "drops_weights") if name in more}
    line = AttentionLines("/job/model.py", 31, "Attention.forward", samples, by, **kept)
    measure = "step.attention_s" if kernels is None else "kernel.attention_s"
    values = {measure: {0: spends if kernels is None else kernels}} if seen else {}
    facts = {} if kernels is None else {"facts": {"0": CUDA}}
    return job({0: rank(forward=0.4, backward=0.6)}, values=values, attention_lines=(line,), **facts, **more)


TABLE = Table(
    "CMP021",
    cmp021,
    where=Where("/job/model.py", 31),
    lines={"attention": ({"spends": 0.0382}, {"spends": 0.038})},
    false_alarms={
        "weights are dropped, which no fused operation does on a CPU": {"drops_weights": True},
        "too few samples of the line to name it": {"samples": 9},
    },
    not_measured={
        "nobody measured it": ({"seen": False}, ("step.attention_s",)),
        "nor is there such a line": ({"seen": False, "samples": 0}, ("step.attention_s",)),
        "on a GPU there is such a line, and no deep window": ({"seen": False, "kernels": 0.0}, ("kernel.attention_s",)),
    },
    severities=(({"spends": 0.25}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.0382}, "low")),
)


def is_clear(analysis: Analysis) -> bool:
    return isinstance(run_rule(RULES["CMP021"], analysis, Config()), Clear)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("by", "more", "change"),
    [
        ("own", {}, "F.scaled_dot_product_attention(q, k, v"),
        ("transformers", {}, 'attn_implementation="sdpa"'),
        ("multihead", {"keeps_weights": True}, "need_weights=False"),
    ],
)
def test_what_to_change(by: str, more: dict[str, Any], change: str) -> None:
    finding = found("CMP021", cmp021(by=by, **more))
    assert change in finding.fixes[0].change and "model.py:31 in Attention.forward" in finding.evidence[1].note


def test_weights_that_are_used_only_exist_in_parts() -> None:
    assert "unless the weights" in found("CMP021", cmp021(keeps_weights=True)).fixes[0].title
    assert "unless" in found("CMP021", cmp021(by="multihead", keeps_weights=True)).fixes[0].title


def test_on_a_gpu_by_its_kernels_even_where_weights_are_dropped() -> None:
    finding = found("CMP021", cmp021(kernels=0.5, drops_weights=True))
    assert finding.evidence[0].metric == "kernel.attention_s" and finding.severity in ("high", "critical")
    assert found("CMP021", cmp021(kernels=0.5, samples=0)).fixes[0].where is None
    assert is_clear(cmp021(kernels=0.07))


def test_on_a_gpu_nothing_is_missing_without_such_a_line() -> None:
    assert is_clear(cmp021(seen=False, samples=0, kernels=0.0))
