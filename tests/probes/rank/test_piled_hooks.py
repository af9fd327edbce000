"""Hooks that are registered again on the same objects are counted; hooks that stand on each object once are not."""

from __future__ import annotations

import functools
import logging
import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fact_paper import Paper  # noqa: E402
from rn50_advisor.probes.rank.piled_hooks import HOOKS_MAX, READINGS_MAX, HookCounts  # noqa: E402

nn = torch.nn


def watch(*_: Any) -> None:
    pass


class Watcher:
    def watch(self, *_: Any) -> None:
        pass

    def __call__(self, *_: Any) -> None:
        pass


class Job:
    def __init__(self) -> None:
        self.net = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.paper = Paper()
        called = [SimpleNamespace(of=lambda: self.net), SimpleNamespace(of=lambda: None)]
        self.counts = HookCounts(self.paper, lambda: called, lambda: [self.optimizer])  # type: ignore[arg-type, return-value]

    def found(self, *, handlers: bool = False) -> list[tuple[str, str, list[list[int]]]]:
        """Without those of loggers, on which pytest has two handlers of its own."""
        known = self.paper.values.get("piled_hooks", [])
        return [(of["kind"], of["function"], of["counts"]) for of in known if (of["kind"] == "addHandler") is handlers]


REGISTERED: dict[str, Callable[[Job, Any], Any]] = {
    "register_forward_hook": lambda job, hook: job.net[0].register_forward_hook(hook),
    "register_forward_pre_hook": lambda job, hook: job.net[0].register_forward_pre_hook(hook),
    "register_full_backward_hook": lambda job, hook: job.net[0].register_full_backward_hook(hook),
    "register_full_backward_pre_hook": lambda job, hook: job.net[0].register_full_backward_pre_hook(hook),
    "register_hook": lambda job, hook: job.net[0].weight.register_hook(hook),
    "register_post_accumulate_grad_hook": lambda job, hook: job.net[0].weight.register_post_accumulate_grad_hook(hook),
    "register_step_pre_hook": lambda job, hook: job.optimizer.register_step_pre_hook(hook),
    "register_step_post_hook": lambda job, hook: job.optimizer.register_step_post_hook(hook),
}


@pytest.mark.parametrize("kind", REGISTERED)
def test_hooks_of_each_kind_that_pile_up(kind: str) -> None:
    job = Job()
    for step in (1, 2, 3):
        REGISTERED[kind](job, watch)
        job.counts.count(step)
    assert job.found() == [(kind, "watch", [[2, 1], [3, 2]])]
    hooks = next(of for of in job.paper.values["piled_hooks"] if of["kind"] == kind)
    assert hooks["file"] == __file__ and hooks["line"] == watch.__code__.co_firstlineno


@pytest.mark.parametrize(
    "make",
    [lambda: lambda *_: None, lambda: functools.partial(watch, 1), lambda: Watcher().watch, Watcher],
    ids=["lambda", "partial", "method", "object"],
)
def test_another_object_of_the_same_code_is_the_same_hook(make: Callable[[], Any]) -> None:
    job = Job()
    for _ in range(4):
        job.net.register_forward_hook(make())
    job.counts.count(9)
    assert [counts for _, _, counts in job.found()] == [[[9, 3]]]


def test_hooks_that_do_not_pile_up() -> None:
    job = Job()
    for step in range(3):
        for module in job.net:
            module.register_forward_hook(watch).remove()
        job.counts.count(step)
    for module in job.net.modules():  # once on each
        module.register_forward_hook(watch)
    job.net.register_forward_hook(Watcher())  # another one
    nn.utils.parametrizations.weight_norm(job.net[0])
    job.counts.count(3)
    assert job.found() == [] and job.paper.missed == []


def test_readings_are_bounded_and_the_first_stays() -> None:
    job = Job()
    job.net.register_forward_hook(watch)
    for step in range(3 * READINGS_MAX):
        job.net.register_forward_hook(watch)
        job.counts.count(step)
        job.counts.count(step)
    ((_, _, counts),) = job.found()
    assert (
        counts[0] == [0, 1] and counts[-1] == [3 * READINGS_MAX - 1, 3 * READINGS_MAX] and len(counts) == READINGS_MAX
    )


def test_so_many_hooks_end_a_count() -> None:
    job = Job()
    for _ in range(HOOKS_MAX + 2):
        job.net.register_forward_hook(watch)
    job.optimizer.register_step_post_hook(watch)
    job.optimizer.register_step_post_hook(watch)
    job.counts.count(1)
    assert [kind for kind, _, _ in job.found()] == ["register_forward_hook"]


def test_an_error_ends_the_counts() -> None:
    job = Job()
    job.optimizer.param_groups = None
    job.counts.count(1)
    job.counts.count(2)
    assert job.paper.missed == ["hooks: TypeError"] and job.found() == []


@pytest.mark.skipif(sys.version_info < (3, 11), reason="code has no qualified name")
def test_handlers_of_loggers_are_counted_as_hooks() -> None:
    job, logger = Job(), logging.getLogger(f"{__name__}.child.of.none")
    try:
        for step in (1, 2, 3):
            logger.addHandler(logging.NullHandler())
            logger.addHandler(logging.StreamHandler())
            job.counts.count(step)
    finally:
        logger.handlers.clear()
    assert ("addHandler", "StreamHandler.emit", [[2, 1], [3, 2]]) in job.found(handlers=True)
