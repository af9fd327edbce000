"""Observations at what an optimizer updates come once a second, rarer if they cost much, and end where they are of no use."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fact_paper import Paper  # noqa: E402
from rn50_advisor.probes.rank.facts.occasional_observations import (  # noqa: E402
    COST_TIMES,
    EVERY_NS,
    FIRST,
    OccasionalObservations,
)

CLOCK = "rn50_advisor.probes.rank.facts.occasional_observations.perf_counter_ns"


class Counted(OccasionalObservations):
    """Reads each optimizer's groups, and finds something in them unless they are empty."""

    NAME = "counted"

    def __init__(self) -> None:
        self.paper, self.steps = Paper(), list[int]()
        super().__init__(self.paper)  # type: ignore[arg-type]

    def _read(self, torch: Any, optimizer: Any, step: int) -> bool:
        torch.ones(1).add(1)  # what a mode of the job would see
        groups = optimizer.param_groups
        self.steps.append(step)
        return bool(groups)

    @property
    def ended(self) -> bool:
        return self._due_ns > 1 << 60


OPTIMIZER, EMPTY = SimpleNamespace(param_groups=[{}]), SimpleNamespace(param_groups=[])


def test_the_next_look_is_a_second_later_and_covers_all_optimizers_of_its_step(monkeypatch: pytest.MonkeyPatch) -> None:
    now, observations = [0], Counted()
    monkeypatch.setattr(CLOCK, lambda: now[0])
    observations.observe(OPTIMIZER, 1), observations.observe(OPTIMIZER, 1)
    now[0] = EVERY_NS - 1
    observations.observe(OPTIMIZER, 2)
    assert observations.steps == [1, 1]
    now[0] = EVERY_NS
    observations.observe(OPTIMIZER, 3)
    assert observations.steps == [1, 1, 3]


def test_expensive_looks_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    times, observations = iter([0, 20_000_000]), Counted()
    monkeypatch.setattr(CLOCK, lambda: next(times))
    observations.observe(OPTIMIZER, 1)
    assert observations._due_ns == 20_000_000 + COST_TIMES * 20_000_000


def test_the_first_ones_come_a_second_apart_although_they_cost_something(monkeypatch: pytest.MonkeyPatch) -> None:
    now, observations = [0], Counted()
    monkeypatch.setattr(CLOCK, lambda: now.append(now[-1] + 1_000_000) or now[-1])
    for step in range(FIRST):
        observations._due_ns = 0
        observations.observe(OPTIMIZER, step), observations.observe(OPTIMIZER, step)
        waits = observations._due_ns - now[-1]
        assert waits == (EVERY_NS if step < FIRST - 1 else COST_TIMES * 1_000_000), step


def test_looks_that_find_nothing_to_read_end() -> None:
    observations = Counted()
    for step in range(10):
        observations._due_ns = min(observations._due_ns, 0) if not observations.ended else observations._due_ns
        observations.observe(EMPTY, step)
    assert observations.steps == [0, 1, 2, 3, 4] and observations.ended


def test_an_optimizer_of_another_kind_ends_the_looks() -> None:
    observations = Counted()
    observations.observe(SimpleNamespace(), 1)
    observations.observe(OPTIMIZER, 2)
    assert observations.steps == [] and observations.paper.missed == ["counted: AttributeError"]


def test_a_mode_or_a_profiler_of_the_job_sees_no_look() -> None:
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise AssertionError(func)

    observations = Counted()
    with Mode():
        observations.observe(OPTIMIZER, 1)
    observations._due_ns = 0
    with torch.profiler.profile() as profile:
        observations.observe(OPTIMIZER, 2)
    observations._due_ns = 0
    assert observations.steps == [] and not [event for event in profile.events() if event.name.startswith("aten")]
    with torch.device("meta"):  # a mode for functions
        observations.observe(OPTIMIZER, 3)
    assert observations.steps == [3]
