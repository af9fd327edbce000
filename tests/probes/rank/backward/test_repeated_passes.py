"""Backward passes that go again through nodes which an earlier one has kept: which count, which do not, and that nothing is kept."""

from __future__ import annotations

import gc
import itertools
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rn50_advisor.probes.rank.backward import repeated_passes  # noqa: E402
from rn50_advisor.probes.rank.backward.backward_nodes import STEPS, BackwardNodes  # noqa: E402
from rn50_advisor.probes.rank.backward.repeated_passes import RepeatedPassWatch  # noqa: E402
from rn50_advisor.probes.rank.facts.process_facts import Facts  # noqa: E402

WIDTH, ROWS = 6, 4


class Job:
    """A trunk with two heads."""

    def __init__(self, folder: Path) -> None:
        self.facts = Facts(str(folder))
        self.trunk = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.Tanh())
        self.heads = torch.nn.ModuleList([torch.nn.Linear(WIDTH, 1), torch.nn.Linear(WIDTH, 1)])
        self.parameters = [*self.trunk.parameters(), *self.heads.parameters()]
        self.passes = RepeatedPassWatch(self.facts, set)

    def losses(self, hidden: Any = None) -> list[Any]:
        hidden = self.trunk(torch.randn(ROWS, WIDTH)) if hidden is None else hidden
        return [head(hidden).square().mean() for head in self.heads]

    def backward(self, loss: Any, **more: Any) -> None:
        self.passes.backward_begins(loss, (loss, None), more)
        torch.autograd.backward(loss, **more)
        self.passes.backward_ends()

    def update(self) -> None:
        self.passes.optimizer_begins()
        with torch.no_grad():
            for parameter in self.parameters:
                parameter.sub_(0.01)
                parameter.grad = None

    def found(self, step: Any) -> dict[str, Any]:
        """After steps of this kind, of which the first is watched, and one more."""
        for number in STEPS[:2]:
            assert not self.passes.turn(number - 1)
            assert self.passes.turn(number)
            step(self)
            self.update()
            assert not self.passes.turn(number + 1)
        found = self.facts.values.get("repeated_passes")
        return {} if found is None else dict(found)


@pytest.fixture
def job(tmp_path: Path) -> Job:
    return Job(tmp_path)


def each_loss(job: Job) -> None:
    first, second = job.losses()
    job.backward(first, retain_graph=True)
    job.backward(second)


def test_a_second_loss_goes_through_the_trunk_again(job: Job) -> None:
    found = job.found(each_loss)
    assert (found["steps"], found["repeating"], found["passes"], found["again"]) == (2, 2, 4, 2)
    assert [(each["file"], each["passes"]) for each in found["lines"]] == [(__file__, 4)]


def test_the_work_of_nodes_gone_through_again_is_the_trunks(job: Job) -> None:
    found = job.found(each_loss)
    trunk, head = (
        ROWS * WIDTH * WIDTH,
        ROWS * WIDTH,
    )  # products of each weight's gradient; the heads' inputs have one, too
    assert found["products"] == [2 * (trunk + 2 * head), trunk]
    assert 0 < found["points"][1] < found["points"][0] / 2


def test_one_pass_for_both_losses_repeats_nothing(job: Job) -> None:
    found = job.found(lambda job: job.backward(sum(job.losses())))
    assert (found["passes"], found["again"], found["lines"]) == (2, 0, [])


def test_losses_of_a_sequence_go_through_all_steps_before(job: Job) -> None:
    def unrolled(job: Job) -> None:
        hidden = torch.randn(ROWS, WIDTH)
        for _ in range(3):
            hidden = job.trunk(hidden)
            job.backward(sum(job.losses(hidden)), retain_graph=True)

    found = job.found(unrolled)
    assert (found["passes"], found["again"]) == (6, 4)


def accumulates(job: Job) -> None:
    for _ in range(3):
        job.backward(sum(job.losses()), retain_graph=True)


def clears_between(job: Job) -> None:
    first, second = job.losses()
    job.backward(first, retain_graph=True)
    for parameter in job.parameters:
        parameter.grad = None
    job.backward(second)


def zeroes_between(job: Job) -> None:
    first, second = job.losses()
    job.backward(first, retain_graph=True)
    job.trunk[0].weight.grad.zero_()
    job.backward(second)


def clips_between(job: Job) -> None:
    first, second = job.losses()
    job.backward(first, retain_graph=True)
    torch.nn.utils.clip_grad_norm_(job.parameters[:1], 1.0)
    job.backward(second)


def replaces_between(job: Job) -> None:
    first, second = job.losses()
    job.backward(first, retain_graph=True)
    job.trunk[0].weight.grad = job.trunk[0].weight.grad.clone()
    job.backward(second)


def updates_between(job: Job) -> None:
    first, second = job.losses()
    job.backward(first, retain_graph=True)
    job.passes.optimizer_begins()
    job.backward(second)


def penalises(job: Job) -> None:
    first, second = job.losses()
    job.backward(first, retain_graph=True, create_graph=True)
    job.backward(second)


def for_some_inputs(job: Job) -> None:
    first, second = job.losses()
    job.backward(first, retain_graph=True)
    job.backward(second, inputs=job.parameters[:1])


def reads_its_inputs(job: Job) -> None:
    x = torch.randn(ROWS, WIDTH, requires_grad=True)
    first, second = job.losses(job.trunk(x))
    job.backward(first, retain_graph=True)
    job.backward(second)


def has_hooks(job: Job) -> None:
    handle = job.trunk[0].weight.register_hook(lambda gradient: gradient.clamp(-1, 1))
    each_loss(job)
    handle.remove()


@pytest.mark.parametrize(
    "step",
    [
        accumulates,
        clears_between,
        zeroes_between,
        clips_between,
        replaces_between,
        updates_between,
        penalises,
        for_some_inputs,
        reads_its_inputs,
        has_hooks,
    ],
)
def test_passes_whose_gradients_do_not_simply_add_up(job: Job, step: Any) -> None:
    found = job.found(step)
    assert (found["steps"], found["again"]) == (2, 0)


def test_the_last_pass_frees_what_it_went_through(job: Job) -> None:
    def then_another(job: Job) -> None:
        each_loss(job)
        job.backward(sum(job.losses()))

    assert job.found(then_another)["again"] == 2


def test_no_tensor_and_no_graph_is_kept_between_passes(job: Job) -> None:
    job.passes.turn(STEPS[0])
    hidden = job.trunk(torch.randn(ROWS, WIDTH))
    kept = weakref.ref(hidden)
    job.backward(sum(job.losses(hidden)), retain_graph=True)
    del hidden
    gc.collect()
    assert kept() is None


def test_gradients_are_the_same(job: Job) -> None:
    def gradients(watched: bool) -> list[Any]:
        torch.manual_seed(1)
        for parameter in job.parameters:
            parameter.grad = None
        first, second = job.losses()
        if watched:
            job.backward(first, retain_graph=True)
            job.backward(second)
        else:
            first.backward(retain_graph=True)
            second.backward()
        return [parameter.grad for parameter in job.parameters]

    alone = gradients(watched=False)
    job.passes.turn(STEPS[0])
    assert all(map(torch.equal, gradients(watched=True), alone))
    assert not job.trunk[0].weight._backward_hooks


def test_nodes_gone_through_again_are_timed_apart(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    ticks = iter(range(10_000))
    monkeypatch.setattr("rn50_advisor.probes.rank.backward.backward_nodes.perf_counter_ns", lambda: next(ticks))
    nodes = BackwardNodes(job.facts, set, job.passes.again)
    for each in (nodes, job.passes):
        assert each.turn(STEPS[0])
    for number, loss in enumerate(job.losses()):
        more = {"retain_graph": number == 0}
        job.passes.backward_begins(loss, (loss,), more)
        nodes.backward_begins(loss)
        loss.backward(**more)
        nodes.backward_ends()
        job.passes.backward_ends()
    nodes.turn(STEPS[0] + 1)
    assert job.facts.values["backward_nodes"]["again_ns"] == 3, "of the trunk: tanh, the product, its transposed weight"


def test_graphs_that_are_too_large_are_not_followed(job: Job) -> None:
    job.passes._nodes_left = 3
    assert job.found(each_loss) == {}


def test_graphs_of_several_threads_are_not_followed(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each thread numbers its nodes from the start: with replicas in threads, other nodes have the same numbers the next time."""
    nodes = [SimpleNamespace(_sequence_nr=lambda: 7, next_functions=()) for _ in range(2)]
    monkeypatch.setattr(repeated_passes, "nodes_of", lambda roots, most: nodes)
    assert job.found(each_loss) == {}


def test_an_error_ends_the_looks_and_not_the_job(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(repeated_passes, "nodes_of", lambda roots, most: 1 / 0)
    job.passes.turn(STEPS[0])
    each_loss(job)
    assert job.trunk[0].weight.grad is not None
    assert not any(job.passes.turn(step) for step in STEPS)
    assert job.facts.values["unpatched"] == ["repeated backward passes: ZeroDivisionError"]


def test_a_profiler_of_the_jobs_is_left_alone(job: Job) -> None:
    def profiled(job: Job) -> None:
        with torch.profiler.profile():
            each_loss(job)

    assert job.found(profiled) == {}


def test_a_replayed_graph_has_no_roots(job: Job) -> None:
    job.passes.turn(STEPS[0])
    job.passes.backward_begins(None, (), {})
    job.passes.backward_ends()
    assert not job.passes.turn(STEPS[0] + 1) and "repeated_passes" not in job.facts.values


def test_lines_have_a_bound(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    lines = itertools.count()
    monkeypatch.setattr(repeated_passes, "calling_lines", lambda: [{"file": "/job/made.py", "line": next(lines)}])

    def many(job: Job) -> None:
        loss = sum(job.losses())
        for _ in range(3 * repeated_passes.LINES_MAX):
            job.backward(loss, retain_graph=True)

    assert len(job.found(many)["lines"]) == repeated_passes.LINES_MAX
