"""CMP016, activations are recomputed without need: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis, HotLine
from rn50_advisor.advisor.model.findings import Where
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp016(
    again: float | None = 0.2,
    free: float = 0.6,
    *,
    used: float | None = None,
    samples: int = 50,
    forward: float = 0.3,
    **more: Any,
) -> Analysis:
    """One rank whose backward pass spends so much of the step on a second forward pass."""
    limit = {} if used is None else {"memory.limit_used_share": {0: used}}
    known = {} if again is None else {"step.recomputing_s": {0: again}}
    values = {**known, "memory.host_left_share": free, **limit}
    lines = (HotLine("/job/model.py", 33, "forward", "", samples, samples / 400, io=False),)
    own = rank(forward=forward, backward=0.9 - forward)
    return job({0: own}, **{"values": values, "recomputing_lines": lines, **more})


TABLE = Table(
    "CMP016",
    cmp016,
    where=Where("/job/model.py", 33),
    lines={
        "again": ({"again": 0.08}, {"again": 0.0799}),
        "free": ({"free": 0.3}, {"free": 0.2999}),
    },
    false_alarms={
        "a limit that is nearly reached": {"used": 0.75},
        "a backward pass that is not long, without a profile": {"again": None},
    },
    not_measured={"a long backward pass without a profile": ({"again": None, "forward": 0.2}, ("step.recomputing_s",))},
    severities=(
        ({"again": 0.3}, "critical"),
        ({"again": 0.2}, "high"),
        ({"again": 0.08}, "medium"),
    ),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp016_names_no_line_for_a_few_samples() -> None:
    assert found("CMP016", cmp016(samples=9)).fixes[0].where is None
