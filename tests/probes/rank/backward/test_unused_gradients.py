"""Parameters with gradients that no optimizer updates are found, unless something else updates them."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fact_paper import Paper  # noqa: E402
from rn50_advisor.probes.rank.backward.unused_gradients import (  # noqa: E402
    GRAPH_STEPS,
    UPDATED_MAX,
    UnusedGradientWatch,
)
from rn50_advisor.probes.rank.facts.precision_facts import CalledModel  # noqa: E402


class Job:
    """Trains a small model; an observation is due in each step."""

    def __init__(self, wrap: Callable[[Any], Any] = lambda model: model) -> None:
        torch.manual_seed(0)
        layers = [torch.nn.Linear(40, 40), torch.nn.Linear(40, 40), torch.nn.Linear(40, 10)]
        self.model = torch.nn.Sequential(*layers)
        self.paper = Paper()
        self.wrapped = wrap(self.model)
        self.beside: list[CalledModel] = []  # further networks that the job calls
        self.made: list[Any] = []  # optimizers
        self.observations = UnusedGradientWatch(self.paper, self.called, lambda: self.made)  # type: ignore[arg-type]
        self.steps = 0

    def called(self) -> list[CalledModel]:
        return [called(self.wrapped, 1), *self.beside]

    def train(self, *optimizers: Any, steps: int = 5, by_hand: Callable[[Any], None] = lambda model: None) -> Any:
        for _ in range(steps):
            self.steps += 1
            self.observations._due_ns = 0
            for optimizer in optimizers:
                optimizer.zero_grad()
            self.model(torch.randn(8, 40)).square().sum().backward()
            for optimizer in optimizers:
                self.observations.observe(optimizer, self.steps)
                optimizer.step()
            by_hand(self.model)
        assert not self.paper.missed
        return self.paper.values.get("unused_gradients")

    def distil(self, teacher: Any, optimizer: Any, *, steps: int = 5, after: bool = False) -> Any:
        """Trains the model on a teacher's outputs; `after`: the teacher reads the model's outputs and not its inputs."""
        self.made.append(optimizer)
        for _ in range(steps):
            self.steps = max(self.steps + 1, GRAPH_STEPS[0])
            self.observations._due_ns = 0
            optimizer.zero_grad()
            self.observations.turn(self.steps)
            x = torch.randn(8, 40)
            made = self.model(x)
            loss = teacher(made).square().sum() if after else (made - teacher(x)).square().sum()
            if self.observations.open:
                self.observations.backward_begins(loss)
            loss.backward()
            self.observations.observe(optimizer, self.steps)
            optimizer.step()
        assert not self.paper.missed
        return self.paper.values.get("unused_gradients")


def called(model: Any, line: int) -> CalledModel:
    return CalledModel(weakref.ref(model), model.training, {"file": "/job/train.py", "line": line})


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
    job.observations._called = lambda: pytest.fail("a further observation")
    never = job.observations._due_ns
    job.observations.observe(updates(*job.model[0].parameters()), job.steps + 1)
    assert job.observations._due_ns == never


def test_a_job_that_makes_models_without_end_is_looked_at_no_more() -> None:
    job = Job()
    assert job.train(updates(*job.model[2].parameters()))["looks"] == 4
    many = torch.optim.SGD([torch.nn.Parameter(torch.ones(())) for _ in range(UPDATED_MAX)], lr=0.1)
    assert job.train(many, steps=1)["looks"] == 0
    job.observations._due_ns = 0
    job.observations.observe(updates(*job.model[2].parameters()), job.steps + 1)
    assert job.observations._due_ns > 1 << 60 and not job.observations._seen


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


def test_parameters_have_the_names_of_the_models_that_are_called() -> None:
    job = Job(torch.nn.DataParallel)
    names = job.observations.names()
    assert names[id(job.model[2].weight)] == "2.weight" and len(names) == len(list(job.model.parameters()))


def test_a_wrapper_is_looked_through() -> None:
    class DistributedDataParallel(torch.nn.Module):
        def __init__(self, module: Any) -> None:
            super().__init__()
            self.module = module

    job = Job(DistributedDataParallel)
    assert job.train(updates(*job.model[2].parameters()))["modules"] == ["0", "1"]


def teacher(inputs: int = 40, width: int = 40) -> Any:
    return torch.nn.Sequential(torch.nn.Linear(inputs, width), torch.nn.ReLU(), torch.nn.Linear(width, 10)).eval()


def test_a_teacher_beside_the_model_is_found_behind_the_loss() -> None:
    job, beside = Job(), teacher()
    job.beside = [called(beside, 7)]
    found = job.distil(beside, updates(*job.model.parameters()))
    assert (found["modules"], found["file"], found["line"]) == (["Sequential"], "/job/train.py", 7)
    assert (found["tensors"], found["all_tensors"], found["elements"]) == (2, 5, 1640 + 410)
    assert (found["order"], found["first"]) == ("upstream", False)
    products = 8 * (1600 + 400)  # of the teacher forward, which needs no gradient of its inputs
    assert found["products"][1] == products + 8 * 400


def test_a_network_that_nobody_has_seen_called_is_named_by_its_largest_weight() -> None:
    job, beside = Job(), teacher()
    found = job.distil(beside, updates(*job.model.parameters()))
    assert found["modules"] == ["the network with a weight of 40 x 40"] and "file" not in found


def test_gradients_that_pass_through_a_network_to_the_model_are_known_as_such() -> None:
    job, beside = Job(), teacher(inputs=10, width=100)
    job.beside = [called(beside, 7)]
    found = job.distil(beside, updates(*job.model.parameters()), after=True)
    assert found["order"] == "downstream"
    assert found["products"][1] == 8 * (1000 + 1000)  # its weights' gradients alone


def test_a_teacher_without_gradients_is_silent() -> None:
    job, beside = Job(), teacher().requires_grad_(False)
    job.beside = [called(beside, 7)]
    assert job.distil(beside, updates(*job.model.parameters()), steps=25) is None


def test_a_network_that_the_job_updates_by_hand_is_used() -> None:
    job, beside = Job(), teacher()
    optimizer = updates(*job.model.parameters())
    for _ in range(6):
        assert job.distil(beside, optimizer, steps=1) is None
        with torch.no_grad():
            for parameter in beside.parameters():
                parameter.sub_(1e-4 * parameter.grad)


def test_an_optimizer_that_steps_later_uses_its_gradients_too() -> None:
    job, beside = Job(), teacher()
    job.made = [updates(*beside.parameters())]
    assert job.distil(beside, updates(*job.model.parameters())) is None


def test_the_work_of_a_network_that_is_used_after_all_is_not_told() -> None:
    """What autograd's graph showed is of both networks, of which one is updated by hand."""
    job, beside, other = Job(), teacher(), teacher()
    optimizer = updates(*job.model.parameters())
    job.beside = [called(beside, 7), called(other, 8)]
    for _ in range(5):
        found = job.distil(lambda x: beside(x) + other(x), optimizer, steps=1)
        with torch.no_grad():
            for parameter in other.parameters():
                parameter.sub_(1e-4 * parameter.grad)
    assert found["line"] == 7 and "products" not in found


def test_the_share_is_of_all_passes_of_a_step() -> None:
    """A pass for the model alone comes before that with the teacher."""
    job, beside = Job(), teacher()
    optimizer = updates(*job.model.parameters())
    alone = job.distil(beside, optimizer)
    job.observations._graph_steps, job.made = [job.steps + 1], [optimizer]
    job.steps += 1
    job.observations.turn(job.steps)
    job.observations.backward_begins(job.model(torch.randn(8, 40)).sum())
    job.observations.backward_begins((job.model(torch.randn(8, 40)) - beside(torch.randn(8, 40))).sum())
    both = job.distil(beside, optimizer)
    assert both["products"][1] == alone["products"][1] and both["products"][0] > 1.3 * alone["products"][0]
    assert both["order"] == "upstream"


def test_no_leaf_of_a_graph_is_kept_alive() -> None:
    job, beside = Job(), teacher()
    gone = weakref.ref(beside[0].weight)
    job.distil(beside, updates(*job.model.parameters()))
    del beside
    assert gone() is None
