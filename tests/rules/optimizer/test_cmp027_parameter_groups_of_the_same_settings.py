"""CMP027, parameter groups of the same settings: its table and its estimate."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp027(
    spent: float = 0.5,
    *,
    groups: int = 100,
    settings: int | None = 2,
    fused: bool = True,
    foreach: bool = False,
    gpu: bool = False,
    **more: Any,
) -> Analysis:
    """A rank that spends so many seconds of its second in an optimizer of so many groups."""
    known = {"groups": groups, "parameters": groups} | ({} if settings is None else {"settings": settings})
    optimizer = {"class": "AdamW", "file": SCRIPT, "line": 31, "fused": fused, "foreach": foreach, **known}
    own = rank(forward=0.4 * (1.0 - spent), backward=0.6 * (1.0 - spent), optimizer=spent)
    facts = {"optimizer": optimizer, **({"cuda": {"index": 0}} if gpu else {})}
    return job({0: own}, **{"facts": {"0": facts}, **more})


TABLE = Table(
    "CMP027",
    cmp027,
    lines={
        "merging": ({"spent": 0.112}, {"spent": 0.11}),
        "groups": ({"groups": 50}, {"groups": 49}),
        "alike": ({"settings": 25}, {"settings": 26}),
    },
    false_alarms={
        "foreach, which may be slower with more tensors": {"foreach": True},
        "an optimizer that takes no time": {"spent": 0.01},
        "on a GPU, where its kernels count": {"gpu": True},
    },
    severities=(({"spent": 0.8}, "critical"), ({"spent": 0.4}, "high"), ({"spent": 0.12}, "medium")),
    where=Where(SCRIPT, 31),
    not_measured={"an older recorder": ({"settings": None}, ("optimizer",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_groups_that_stay_are_told() -> None:
    finding = found("CMP027", cmp027(settings=4))
    assert finding.title.endswith("parameter groups with 4 different settings")
    assert (
        finding.fixes[0].title == "4 groups, one for each setting"
        and "with 4 different settings" in finding.evidence[0].note
    )


def test_one_tensor_after_the_other_gains_less() -> None:
    fused, plain = (found("CMP027", cmp027(fused=fused)).saving for fused in (True, False))
    assert fused is not None and plain is not None
    assert fused.seconds_per_step == pytest.approx((0.14, 0.31)) and plain.seconds_per_step == pytest.approx(
        (0.075, 0.185)
    )
