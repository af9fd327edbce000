"""From what NCCL timed to the wire of each kind of collective, and to the most that all of them can cost."""

from __future__ import annotations

from typing import Any

import pytest

from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse


def row(ms: float, calls: int = 10, name: str = "nccl:all_reduce", size: int = 25_000_000) -> dict[str, Any]:
    return {"group": "0", "name": name, "bytes": size, "calls": calls, "ms": ms, "least_ms": 1.0, "ranks": "[0, 1]"}


def collective_times(*rows: dict[str, Any], span_s: float = 2.0, untimed: int = 1) -> dict[str, Any]:
    spent = sum(each["ms"] for each in rows)
    return {"span_s": span_s, "ms": spent, "calls": 20, "untimed": untimed, "rows": list(rows)}


def test_of_all_ranks_the_shortest_is_the_wire() -> None:
    facts = {
        100: {"collective_times": collective_times(row(200.0))},
        101: {"collective_times": collective_times(row(50.0))},
    }
    found = analyse(recording({0: plan(30), 1: plan(30)}, facts=facts))
    assert found.by_rank("collectives.timed_share") == pytest.approx({0: 0.1, 1: 0.025})
    words = found.facts["exchange"]["timed by NCCL"]
    assert words.startswith("all_reduce of 25 MB in 5.00 ms, 5 GB/s on each link; at most 10 % of a rank's time")


def test_those_that_take_the_most_come_first_and_few_are_named() -> None:
    rows = [row(float(ms), name=f"nccl:_kind_{ms}_base") for ms in (1, 40, 30, 20)]
    words = analyse(recording({0: plan(30)}, facts={100: {"collective_times": collective_times(*rows)}})).facts[
        "exchange"
    ]
    named = [part.split(" of ")[0] for part in words["timed by NCCL"].split("; ")]
    assert named[:3] == ["kind_40", "kind_30", "kind_20"] and len(named) == 4


@pytest.mark.parametrize(
    "times", [None, {}, {"rows": []}, collective_times(row(5.0), span_s=0.5), collective_times(row(5.0), untimed=2)]
)
def test_without_times_or_with_too_few_no_share_is_known(times: object) -> None:
    found = analyse(recording({0: plan(30)}, facts={100: {"collective_times": times}}))
    assert not found.has("collectives.timed_share")
