"""CMP014, the optimizer is not fused on the CPU: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp014(
    spent: float = 0.3,
    *,
    name: str | None = "AdamW",
    torch: str = "2.5.1",
    ranks: int = 1,
    fused: bool | None = None,
    sparse: bool = False,
    gpu: bool = False,
    module: str = "torch.optim.adamw",
    **more: Any,
) -> Analysis:
    """Ranks that spend so much of their step in an optimizer of 160 tensors."""
    optimizer = {"module": module, "fused": fused, "sparse": sparse, "parameters": 160, "elements": 25_600_000}
    known = {"torch": torch, "optimizer": {**optimizer, **({"class": name} if name else {})}}
    facts = {str(n): {**known, **({"cuda": {"index": 0}} if gpu else {})} for n in range(ranks)}
    own = {n: rank(1.0 - spent, optimizer=0.0) | {"optimizer": spent} for n in range(ranks)}
    return job(own, **{"facts": facts, **more})


TABLE = Table(
    "CMP014",
    cmp014,
    lines={"optimizer": ({"spent": 0.1001}, {"spent": 0.0999})},
    false_alarms={
        "waiting for a core": {"spent": 0.2, "values": {"step.run_delay_s": {0: 0.6}}},
        "fused already": {"fused": True},
        "before torch had it": {"torch": "2.3.1"},
        "sparse gradients": {"sparse": True},
        "on a GPU, which is for CMP009": {"gpu": True},
        "of another library": {"name": "Lion"},
        "of another library under the same name": {"module": "bitsandbytes.optim.adamw"},
        "without much to merge": {"name": "SGD"},
    },
    severities=(
        ({"spent": 0.5}, "critical"),
        ({"spent": 0.3}, "high"),
        ({"spent": 0.1}, "medium"),
    ),
    also_fires={"explicitly not fused": {"fused": False}, "of two ranks": {"ranks": 2}},
    not_measured={"an unknown optimizer": ({"name": None}, ("optimizer",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp014_asks_for_the_fused_form_of_the_jobs_own_class() -> None:
    fix = found("CMP014", cmp014(name="Adagrad")).fixes[0]
    assert fix.title == "Adagrad in its fused form" and fix.change == "Adagrad(..., fused=True)"
