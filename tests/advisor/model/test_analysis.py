"""Asking an analysis for its values: by rank, of whatever scope, and without going through all of them each time."""

from __future__ import annotations

from collections.abc import ItemsView
from dataclasses import replace

from rn50_advisor.advisor.model.analysis import JOB, Analysis
from rn50_advisor.advisor.model.recording import Meta
from rn50_advisor.advisor.model.report import StepTime, Throughput

META = Meta("job", ("python",), "/job", "node", 0.0, 0, 1)


class Counted(dict[tuple[str, str], float]):
    """Counts how often somebody goes through it."""

    walks = 0

    def items(self) -> ItemsView[tuple[str, str], float]:
        self.walks += 1
        return super().items()


def asked(values: dict[tuple[str, str], float]) -> Analysis:
    return Analysis(META, 2, StepTime(1.0, 1.0, 9, 9), Throughput(None, None, None, 2), values=values)


def test_values_are_found_by_rank_in_the_ranks_order_and_by_any_scope() -> None:
    analysis = asked({("a.s", "rank:10"): 3.0, ("a.s", "rank:2"): 1.0, ("a.s", JOB): 2.0, ("b.s", "gpu:0"): 4.0})
    assert list(analysis.by_rank("a.s").items()) == [(2, 1.0), (10, 3.0)]
    assert analysis.by_rank("b.s") == {} and analysis.has("b.s") and not analysis.has("c.s")


def test_other_values_are_asked_anew() -> None:
    analysis = asked({("a.s", "rank:0"): 1.0})
    assert analysis.has("a.s")
    assert replace(analysis, values={("b.s", "rank:0"): 2.0}).by_rank("b.s") == {0: 2.0}


def test_many_questions_go_through_the_values_once() -> None:
    values = Counted({("a.s", f"rank:{n}"): float(n) for n in range(9)})
    analysis = asked(values)
    for name in ("a.s", "b.s", "c.s"):
        analysis.by_rank(name)
        analysis.has(name)
    assert values.walks == 1
