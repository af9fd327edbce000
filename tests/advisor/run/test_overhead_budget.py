"""Measurements dropped when the advisor costs too much, and the report on a recorder that cannot be dropped."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rn50_advisor.advisor.analysis.steps.recent_steps import RecentSteps
from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.run import overhead_budget
from rn50_advisor.advisor.run.overhead_budget import OverheadBudget
from rn50_advisor.advisor.run.own_usage import MARKS

SECOND = 1_000_000_000
SAMPLES = (Sample("cpu.util", "cpu:0", 1.0), Sample("cpu.load1", "host", 1.0))


class Book:
    """Always over the budget; drops whatever it is asked to."""

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.asked: list[float] = []

    def cpu_s(self, children_cpu_s: float) -> float:
        return 5.0 + children_cpu_s

    def over_budget(self, cpu_s: float) -> float:
        self.asked.append(cpu_s)
        return 0.03

    def next_to_shed(self, active: list[str]) -> str | None:
        return next((name for name in self.names if name in active), None)


def made(book: Any, news: list[Any]) -> tuple[OverheadBudget, Any, Any]:
    writer: Any = SimpleNamespace(put_event=news.append, put_gap=news.append)
    host: Any = SimpleNamespace(active=("disk", "gpu"), shed=lambda name: name == "disk")
    stacks: Any = SimpleNamespace(sampling=True, cpu_s=2.0)
    return OverheadBudget(book, writer, host=host, stacks=stacks, budget=0.01), host, stacks


def test_one_measurement_after_the_other_is_dropped_and_reported() -> None:
    news: list[Any] = []
    book = Book("stacks", "cpu_cores", "workers", "disk")
    spares, _, stacks = made(book, news)
    assert spares.workers and spares.kept(SAMPLES) == SAMPLES and stacks.sampling
    for _ in range(4):
        spares.look((), asked_cpu_s=3.0)
    assert not spares.workers and not stacks.sampling
    assert [sample.scope for sample in spares.kept(SAMPLES)] == ["host"]
    assert [one.data["probe"] for one in news[::2]] == ["stacks", "cpu_cores", "workers", "disk"]
    assert [gap.metric for gap in news[1::2]] == ["stacks", "cpu_cores", "workers", "disk"]
    assert book.asked == [4.0] * 4, "what the user asked for is not counted"


def test_what_cannot_be_given_up_is_not_said_to_be() -> None:
    news: list[Any] = []
    made(Book("gpu"), news)[0].look((), asked_cpu_s=0.0)
    assert news == []


@pytest.mark.parametrize(("cost_s", "reports"), [(0.1, 0), (0.9, 1)])
def test_a_recorder_over_the_budget_is_reported_once(
    monkeypatch: pytest.MonkeyPatch, cost_s: float, reports: int
) -> None:
    news: list[Any] = []
    spares, _, _ = made(Book(), news)
    for turn in range(4):
        monkeypatch.setattr(overhead_budget.time, "perf_counter_ns", lambda turn=turn: turn * 30_000_000_000)
        rank: Any = SimpleNamespace(
            pid=7, rank=0, recent=RecentSteps(), position=SimpleNamespace(self_ns=round(turn * cost_s * 1e9))
        )
        spares.look([rank], asked_cpu_s=0.0)
    assert [event.kind for event in news] == ["recorder_cost"] * reports


def test_marks_that_a_rank_gives_up_by_itself_are_reported_once() -> None:
    news: list[Any] = []
    spares, _, _ = made(Book(), news)
    rank: Any = SimpleNamespace(
        pid=7, rank=0, first_seen_ns=0, recent=RecentSteps(), position=SimpleNamespace(self_ns=5)
    )
    spares.look([rank], asked_cpu_s=0.0)
    assert news == []
    rank.recent.counted = 9
    for _ in range(2):
        spares.look([rank], asked_cpu_s=0.0)
    event, gap = news
    assert (event.kind, event.data["probe"], event.rank) == ("shed", MARKS, 0)
    assert "boundaries" in gap.reason


def test_what_recorders_take_in_workers_is_added_up_while_they_live(monkeypatch: pytest.MonkeyPatch) -> None:
    spares, _, _ = made(Book(), [])
    assert spares.worker_cost == {}

    def worker(pid: int, since_s: int, self_s: float) -> Any:
        return SimpleNamespace(
            pid=pid, first_seen_ns=since_s * SECOND, position=SimpleNamespace(self_ns=self_s * SECOND)
        )

    seconds = (
        [worker(7, 0, 0.01)],
        [worker(7, 0, 0.03), worker(8, 1, 0.02)],
        [worker(8, 1, 0.05)],
        [worker(8, 3, 0.04)],
    )
    for now_s, living in enumerate(seconds, 1):
        monkeypatch.setattr(overhead_budget.time, "perf_counter_ns", lambda now_s=now_s: now_s * SECOND)
        spares.look((), living, asked_cpu_s=0.0)
    # 7 for two seconds, 8 for two, and for one another process of that number
    assert spares.worker_cost == pytest.approx({"workers_wall_s": 5.0, "workers_self_s": 0.03 + 0.05 + 0.04})
