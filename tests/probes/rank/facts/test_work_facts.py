"""The work of a step: noted first, and again when it has changed for good."""

from __future__ import annotations

import itertools
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch")  # the recorder's module looks for it

from fact_paper import Paper
from rn50_advisor.probes.rank.facts import work_facts
from rn50_advisor.probes.rank.facts.work_facts import CHANGES_MAX, CONFIRMED, EVERY_NS, Work
from rn50_advisor.probes.rank.layout import WORK_FIELDS
from rn50_advisor.probes.rank.recorder import Recorder


class Parameter:
    def __init__(self, elements: int, *, learns: bool = True) -> None:
        self.elements, self.grad = elements, object() if learns else None

    def numel(self) -> int:
        return self.elements


class Job:
    """Looks at one step a second; `batch`: its bytes."""

    def __init__(self) -> None:
        self.paper, self.step, self.now = Paper(), 0, 0
        self.work = Work(self.paper)  # type: ignore[arg-type]
        self.work._spent = lambda began: None  # type: ignore[method-assign]

    def train(self, *optimizers: list[Parameter], batch: int = 0, steps: int = CONFIRMED + 1) -> None:
        for _ in range(steps):
            self.step, self.now = self.step + 10, self.now + EVERY_NS
            assert self.work.sampled(self.step, self.now)
            if batch:
                self.work.batch(bytes_of(batch))
            for parameters in optimizers:
                assert self.work.sampled(self.step, self.now), "all optimizers of the step"
                self.work.optimizer(SimpleNamespace(param_groups=[{"params": parameters}]))

    @property
    def changes(self) -> list[tuple[int, int, int]]:
        rows = [dict(zip(WORK_FIELDS, row, strict=True)) for row in self.paper.values.get("work", [])]
        return [(row["step"], row["trained"], row["batch_bytes"]) for row in rows]


def bytes_of(size: int) -> Any:
    tensor = type("Tensor", (), {"nbytes": size})
    tensor.__module__ = "torch"
    return tensor()


HEAD, BODY = [Parameter(50)], [Parameter(7000), Parameter(50)]


def test_nothing_is_written_anew_while_nothing_changes() -> None:
    job = Job()
    job.train(HEAD, batch=1000, steps=20)
    assert job.changes == [(10, 50, 1000)] and job.paper.written == 0


def test_a_step_in_between_is_not_sampled() -> None:
    job = Job()
    job.train(HEAD)
    assert not job.work.sampled(job.step + 1, job.now + EVERY_NS - 1)
    assert job.work.sampled(job.step + 2, job.now + EVERY_NS)


def test_no_sample_starts_after_an_unobserved_fetch() -> None:
    job = Job()
    job.train(HEAD, batch=1000, steps=1)
    late = job.now + EVERY_NS
    assert not job.work.sampled(job.step + 1, late, fetched_unobserved=True)
    assert job.work.sampled(job.step + 1, late), "a loop without a loader"
    assert job.work.sampled(job.step + 1, late, fetched_unobserved=True), (
        "the optimizer of a step whose batch was sampled"
    )


@pytest.mark.parametrize(("batches", "sampled_step"), [(0, 7), (1, -1)])
def test_a_step_with_an_unobserved_fetch_is_not_sampled(tmp_path: Path, batches: int, sampled_step: int) -> None:
    recorder = Recorder(SimpleNamespace(is_grad_enabled=lambda: True), str(tmp_path))
    account: Any = recorder.own_account()
    account.step, account.micro_batches, account.optimizers = 7, batches, 100
    recorder.passes.optimizer_begin(SimpleNamespace(param_groups=[{"params": HEAD}]))
    assert recorder.work._sample[0] == sampled_step and recorder.errors == 0


def test_expensive_samples_are_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(work_facts, "perf_counter_ns", itertools.count(0, 2_000_000).__next__)
    work = Work(Paper())  # type: ignore[arg-type]
    assert work.sampled(1, 0)
    slow = SimpleNamespace(param_groups=[{"params": [Parameter(1) for _ in range(20)]}])
    work.optimizer(slow)
    assert work._due_ns > work._cost_ns * 1000 > EVERY_NS


@pytest.mark.parametrize(
    ("after", "batch", "change"),
    [
        pytest.param([BODY], 1000, (50, 7050, 1000), id="the rest learns too"),
        pytest.param([HEAD], 4000, (50, 50, 4000), id="larger pictures"),
        pytest.param([[Parameter(50)]], 1000, (50, 50, 1000), id="another model of the same size"),
        pytest.param([HEAD, [Parameter(30)]], 1000, (50, 80, 1000), id="a second optimizer"),
    ],
)
def test_what_changes_for_good_is_noted_with_its_first_step(after, batch: int, change: tuple[int, ...]) -> None:
    job = Job()
    job.train(HEAD, batch=1000)
    first = job.step + 10
    job.train(*after, batch=batch)
    assert job.changes == [(10, change[0], 1000), (first, *change[1:])] and job.paper.written == 1


def test_what_changes_from_step_to_step_is_not() -> None:
    job = Job()
    for n in range(20):
        job.train(HEAD, batch=1000 + 500 * (n % 3), steps=1)
        job.train(HEAD, [Parameter(30)], batch=1000, steps=1)
    assert len(job.changes) == 1


def test_frozen_parameters_do_not_learn_and_a_step_without_update_changes_nothing() -> None:
    job = Job()
    job.train([Parameter(7000, learns=False), Parameter(50)])
    assert job.changes[0][1] == 50
    job.train([], steps=10)
    assert len(job.changes) == 1


def test_the_list_does_not_grow_for_ever() -> None:
    job = Job()
    for n in range(CHANGES_MAX + 20):
        job.train(HEAD, batch=1000 * (n % 2 + 1))
    assert len(job.changes) == CHANGES_MAX
