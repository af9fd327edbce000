"""Parameters with gradients that no optimizer updates are found, unless something else updates them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rn50_advisor.probes.rank.facts.unused_gradients import UPDATED_MAX, UnusedGradientLooks  # noqa: E402


class Paper:
    """Stands in for the facts."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}
        self.missed: list[str] = []

    def write(self) -> None: ...

    def miss(self, what: str) -> None:
        self.missed.append(what)


class Job:
    """Trains a small model; a look is due in each step."""

    def __init__(self, wrap: Callable[[Any], Any] = lambda model: model) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(40, 40), torch.nn.Linear(40, 40), torch.nn.Linear(40, 10)]
        self.model = torch.nn.Sequential(*layers)
        self.paper = Paper()
        self.wrapped = wrap(self.model)
        self.looks = UnusedGradientLooks(self.paper, lambda: self.wrapped)  # type: ignore[arg-type]
        self.steps = 0

    def train(self, *optimizers: Any, steps: int = 5, by_hand: Callable[[Any], None] = lambda model: None) -> Any:
        for _ in range(steps):
            self.steps += 1
            self.looks._due_ns = 0
            for optimizer in optimizers:
                optimizer.zero_grad()
            self.model(torch.randn(8, 40)).square().sum().backward()
            for optimizer in optimizers:
                self.looks.look(optimizer, self.steps)
                optimizer.step()
            by_hand(self.model)
        assert not self.paper.missed
        return self.paper.values.get("unused_gradients")


def updates(*parameters: Any) -> Any:
    return torch.optim.SGD(parameters, lr=1e-4)


def test_layers_before_the_one_that_learns_are_counted() -> None:
    job = Job()
    assert job.train(updates(*job.model[2].parameters())) == {
        "looks": 4,
        "tensors": 2,
        "elements": 2 * (1600 + 40),
        "all_tensors": 3,
        "all_elements": 2 * (1600 + 40) + 410,
        "first": True,
        "modules": ["0", "1"],
    }


def test_layers_between_those_that_learn_are_known_as_such() -> None:
    job = Job()
    found = job.train(updates(*job.model[0].parameters(), *job.model[2].parameters()))
    assert not found["first"] and found["tensors"] == 1


def test_a_scale_before_all_layers_does_not_count_as_one() -> None:
    job = Job()
    job.wrapped.scale = torch.nn.Parameter(torch.ones(()))
    job.wrapped.register_forward_hook(lambda model, rows, found: found * model.scale)
    assert job.train(updates(job.model.scale, *job.model[2].parameters()))["first"]


def test_all_optimizers_of_a_step_are_asked() -> None:
    job = Job()
    assert job.train(updates(*job.model[0].parameters()), updates(*job.model[1:].parameters())) is None


def test_frozen_layers_have_no_gradients() -> None:
    job = Job()
    job.model[:2].requires_grad_(False)
    assert job.train(updates(*job.model[2].parameters())) is None


def test_what_the_job_updates_by_hand_is_used() -> None:
    def descend(model: Any) -> None:
        for parameter in model[:2].parameters():
            parameter.data -= 1e-4 * parameter.grad

    job = Job()
    assert job.train(updates(*job.model[2].parameters()), by_hand=descend) is None


def test_a_gradient_of_long_ago_is_no_work() -> None:
    job = Job()
    job.model(torch.randn(8, 40)).sum().backward()
    job.model = job.model[2:]
    assert job.train(updates(*job.model.parameters())) is None


def test_where_all_learn_the_looks_end() -> None:
    job = Job()
    job.train(updates(*job.model.parameters()), steps=25)
    job.looks._trained = lambda: pytest.fail("a further look")
    never = job.looks._due_ns
    job.looks.look(updates(*job.model[0].parameters()), job.steps + 1)
    assert job.looks._due_ns == never


def test_a_job_that_makes_models_without_end_is_looked_at_no_more() -> None:
    job = Job()
    assert job.train(updates(*job.model[2].parameters()))["looks"] == 4
    many = torch.optim.SGD([torch.nn.Parameter(torch.ones(())) for _ in range(UPDATED_MAX)], lr=0.1)
    assert job.train(many, steps=1)["looks"] == 0
    job.looks._due_ns = 0
    job.looks.look(updates(*job.model[2].parameters()), job.steps + 1)
    assert job.looks._due_ns > 1 << 60 and not job.looks._seen


def test_an_optimizer_of_copies_says_nothing_about_the_model() -> None:
    job = Job()
    master = torch.nn.Parameter(torch.ones(3000))
    master.grad = torch.ones(3000)
    assert job.train(updates(master)) is None


def test_once_they_learn_no_look_counts_any_more() -> None:
    job = Job()
    assert job.train(updates(*job.model[2].parameters()))["looks"] == 4
    assert job.train(updates(*job.model.parameters()), steps=2)["looks"] == 0


@pytest.mark.parametrize("layout", ["channels_last", "strided"])
def test_kernels_of_which_only_the_centre_gets_gradients_are_seen(layout: str) -> None:
    """3 x 3 kernels on a picture of one pixel."""
    job = Job()
    job.model = torch.nn.Sequential(
        torch.nn.Conv2d(16, 64, 3, padding=1), torch.nn.Flatten(), torch.nn.Linear(64, 10), torch.nn.Flatten()
    )
    if layout == "channels_last":
        job.model = job.model.to(memory_format=torch.channels_last)
    job.wrapped, model = job.model, job.model
    job.model = lambda rows: model(rows[:, :16, None, None])  # type: ignore[assignment]
    assert job.train(updates(*model[2].parameters()))["looks"] == 4


def test_a_wrapper_is_looked_through() -> None:
    class DistributedDataParallel(torch.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

    job = Job(DistributedDataParallel)
    assert job.train(updates(*job.model[2].parameters()))["modules"] == ["0", "1"]
