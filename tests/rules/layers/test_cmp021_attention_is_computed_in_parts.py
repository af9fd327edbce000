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
    faults: float = 0.0,
    **more: Any,
) -> Analysis:
    """A rank whose forward pass takes so many seconds of its second for attention in parts, or whose GPU so many in `kernels`.

    `faults`: seconds of its passes in the kernel.
    """
    kept = {name: more.pop(name) for name in ("keeps_weights", "drops_weights") if name in more}
    line = AttentionLines("/job/model.py", 31, "Attention.forward", samples, by, **kept)
    measure = "step.attention_s" if kernels is None else "kernel.attention_s"
    values: dict[str, Any] = {measure: {0: spends if kernels is None else kernels}} if seen else {}
    if faults:
        values["step.system_s"] = {0: faults}
    facts = {} if kernels is None else {"facts": {"0": CUDA}}
    return job({0: rank(forward=0.4, backward=0.6)}, values=values, attention_lines=(line,), **facts, **more)


TABLE = Table(
    "CMP021",
    cmp021,
    where=Where("/job/model.py", 31),
    lines={"attention": ({"spends": 0.0801}, {"spends": 0.0799})},
    false_alarms={
        "weights are dropped, which no fused operation does on a CPU": {"drops_weights": True},
        "too few samples of the line to name it": {"samples": 9},
    },
    not_measured={
        "nobody measured it": ({"seen": False}, ("step.attention_s",)),
        "nor is there such a line": ({"seen": False, "samples": 0}, ("step.attention_s",)),
        "on a GPU there is such a line, and no deep window": ({"seen": False, "kernels": 0.0}, ("kernel.attention_s",)),
    },
    severities=(({"spends": 0.28}, "high"), ({"spends": 0.1}, "medium"), ({"spends": 0.0801}, "low")),
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


# Forward pass of the attention as a share of the step, and times as fast with one operation: one core, a heap that keeps its pages
MEASURED = (
    (0.041, 0.999),
    (0.091, 1.031),
    (0.080, 1.009),
    (0.139, 1.069),
    (0.243, 1.205),
    (0.135, 1.050),
    (0.195, 1.100),
    (0.187, 1.252),
    (0.208, 1.023),
)


@pytest.mark.parametrize(("share", "gain"), MEASURED)
def test_what_was_measured_on_a_cpu_is_inside_the_two_cases(share: float, gain: float) -> None:
    analysis = cmp021(share)
    if share < 0.08:
        assert is_clear(analysis) and gain < 1.02
        return
    saving = found("CMP021", analysis).saving
    assert saving is not None
    assert saving.speedup[0] <= gain <= saving.speedup[1] < 1.45


# With malloc's usual limits: the kernel's time per second of attention
FAULTING = ((0.241, 0.97, 1.650), (0.231, 1.04, 1.395), (0.142, 0.02, 1.066))


@pytest.mark.parametrize(("share", "kernel", "gain"), FAULTING)
def test_fresh_memory_for_the_scores_is_saved_at_best(share: float, kernel: float, gain: float) -> None:
    saving, calm = (found("CMP021", cmp021(share, faults=seconds)).saving for seconds in (share * kernel, 0.0))
    assert saving is not None and calm is not None
    assert saving.speedup[0] == calm.speedup[0] == 1.0 and saving.speedup[0] <= gain <= saving.speedup[1]
    assert saving.speedup[1] > calm.speedup[1]


def test_the_kernels_time_for_other_memory_is_not_promised() -> None:
    some, more = (found("CMP021", cmp021(0.1, faults=seconds)).saving for seconds in (0.15, 0.4))
    assert some is not None and some == more
