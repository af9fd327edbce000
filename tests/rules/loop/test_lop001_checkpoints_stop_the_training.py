"""LOP001, checkpoints stop the training: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table, waits, warm
from table_checks import Check, checks


def lop001(
    spent: float = 0.2, gap: float = 0.0, saving: float = 0.0, *, other: float = 0.5, seen: bool = True, **more: Any
) -> Analysis:
    """Rank 0 writes checkpoints, also in this share of the time between its steps; rank 1 needs `other` seconds and waits."""
    sites = ({"id": 0, "file": SCRIPT, "line": 88, "count": 6},) if seen else ()
    own = {0: rank(**{"gap.checkpoint": spent, "gap": gap}), 1: rank(other)}
    return job(own, **{"save_sites": sites, "values": {"gap.save_share": saving}, **more})


TABLE = Table(
    "LOP001",
    lop001,
    lines={
        "share": ({"spent": 0.03}, {"spent": 0.0299}),
        "writing": ({"spent": 0.01, "gap": 0.2, "saving": 0.5}, {"spent": 0.01, "gap": 0.2, "saving": 0.499}),
    },
    false_alarms={"a small share of the time": {"spent": 0.01, "gap": 0.02, "saving": 0.9}},
    severities=(*waits("spent"), ({"spent": 0.04}, "low")),
    ranks=(0,),
    where=Where(SCRIPT, 88),
    best=({"spent": 0.2, "other": 0.9}, warm(1 / 0.9)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_lop001_counts_what_is_written_after_a_checkpoint_was_made_in_memory() -> None:
    finding = found("LOP001", TABLE.job(spent=0.1, gap=0.2, saving=0.9))
    assert finding.seconds_per_step == pytest.approx(0.1 + 0.18)
    assert finding.saving is not None and finding.saving.seconds_per_step[0] == pytest.approx(0.14)
    measured = [(e.metric, e.value, e.threshold) for e in finding.evidence]
    assert measured[:2] == [("step.checkpoint_s", 0.1, 0.03), ("gap.save_share", 0.9, 0.5)]
    assert "another 18 %" in finding.evidence[1].note
    assert "gap.save_share" not in {e.metric for e in found("LOP001", TABLE.job(gap=0.2, saving=0.4)).evidence}


@pytest.mark.parametrize(
    ("saved", "once", "severity"), [(0.1, 0.6, "medium"), (0.1, 0.59, "high"), (0.2, 0.6, "critical")]
)
def test_what_is_written_once_between_steps_promises_no_certain_gain(saved: float, once: float, severity: str) -> None:
    values = {"gap.save_share": 0.9, "step.gap_s": {0: 0.2, 1: 0.0}}
    values |= {"step.longest_gap_s": {0: 18.0}, "step.longest_gap_share": {0: once}}
    finding = found("LOP001", TABLE.job(spent=saved, gap=0.2, values=values))
    assert finding.severity == severity and finding.saving is not None
    assert (finding.saving.speedup[0] == 1.0) == (severity == "medium")


def test_needless_bytes_of_views_come_first() -> None:
    def with_sizes(needed: int) -> Any:
        site = {"id": 0, "file": SCRIPT, "line": 88, "count": 6, "stored_bytes": 100_000_000, "needed_bytes": needed}
        return found("LOP001", lop001(save_sites=(site,)))

    views, whole = with_sizes(20_000_000), with_sizes(71_000_000)
    assert "20 MB instead of 100 MB" in views.fixes[0].title and views.fixes[0].where == Where(SCRIPT, 88)
    assert "less often" in views.fixes[1].title and "less often" in whole.fixes[0].title
    assert any("views of larger ones" in each.note for each in views.evidence)
    assert views.saving is not None and views.saving.seconds_per_step[0] == pytest.approx(0.4 * 0.2)
