"""CMP012, torch.compile compiles again and again: its table."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_table import Table
from table_checks import Check, checks


def cmp012(
    late: float | None = 6.0, late_s: float = 0.12, *, reason: str = "0/0: x size mismatch", **more: Any
) -> Analysis:
    """One rank whose dynamo compiled so often after the 50th step, and so long a step."""
    made = {"file": SCRIPT, "line": 12, "function": "loss_of", "reason": reason, "began_ns": 1, "took_ns": 1}
    facts = {"compiled_frames": 3, "compilations": [made]}
    values = {} if late is None else {"compile.late": {0: late}, "compile.late_s": {0: late_s}}
    return job({0: rank()}, **{"facts": {"0": facts}, "values": values, **more})


TABLE = Table(
    "CMP012",
    cmp012,
    where=Where(SCRIPT, 12),
    lines={
        "count": ({"late": 3.0, "late_s": 1e-5}, {"late": 2.0, "late_s": 1e-5}),
        "share": ({"late": 1.0, "late_s": 0.0201}, {"late": 1.0, "late_s": 0.0199}),
    },
    false_alarms={"nothing is compiled late": {"late": 0.0, "late_s": 0.0}},
    severities=(({}, "medium"),),
    also_fires={"dynamo does not report why": {"reason": ""}},
    not_measured={"when it compiled": ({"late": None}, ("compile.late",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)
