"""Networks that do not learn are found by their layers, and their inputs compared; the job's classes stay as they were where nothing is."""

from __future__ import annotations

import linecache
import pickle
from _thread import get_ident
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="torch not installed: pip install '.[train]'")
pytestmark = pytest.mark.torch

from torch import nn  # noqa: E402

from rn50_advisor.probes.rank.frozen import frozen_networks  # noqa: E402
from rn50_advisor.probes.rank.frozen.frozen_networks import FrozenNetworks  # noqa: E402


class Encoder(nn.Module):  # type: ignore[misc]
    def __init__(self, noise: float = 0.0) -> None:
        super().__init__()
        self.layer, self.noise = nn.Linear(8, 200), noise

    def forward(self, x: Any) -> Any:
        WATCHING[0].layer_called(
            self.layer
        )  # as the wrapper of its class does in the steps in which layers are patched
        return self.layer(x) + (self.noise * torch.randn(()) if self.noise else 0.0)


class Model(nn.Module):  # type: ignore[misc]
    """A trained head on a frozen part."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder, self.head = Encoder().eval().requires_grad_(False), nn.Linear(200, 2)

    def forward(self, x: Any) -> Any:
        return self.head(self.encoder(x))


FORWARD = Encoder.forward
WATCHING: list[FrozenNetworks] = []
DATA = torch.rand(256, 8, generator=torch.Generator().manual_seed(0))


class Job:
    def __init__(self) -> None:
        self.updated: set[int] = set()
        self.facts = SimpleNamespace(values={})
        self.torch = torch
        self.account = SimpleNamespace(thread=get_ident(), self_ns=0)
        self.passes = SimpleNamespace(unused=SimpleNamespace(updated=lambda: self.updated))
        WATCHING[:] = [FrozenNetworks(self)]  # type: ignore[arg-type]

    def found(self) -> Any:
        return self.facts.values.get("frozen_networks", [])

    def epochs(
        self, network: Any, count: int = 3, *, data: Any = lambda: DATA, grad: bool = False, after: Any = int
    ) -> None:
        with torch.set_grad_enabled(grad):
            for _ in range(count):
                for batch in data()[torch.randperm(256, generator=torch.Generator().manual_seed(0))].split(16):
                    network(batch)
                    after()


@pytest.fixture
def job(monkeypatch: pytest.MonkeyPatch) -> Iterator[Job]:
    monkeypatch.setattr(frozen_networks, "EVERY_NS", 0)
    monkeypatch.setattr(frozen_networks, "SETTLED_EVERY_NS", 0)
    monkeypatch.setattr(frozen_networks, "COST_TIMES", (0, 0))
    monkeypatch.setattr(frozen_networks, "compiled_frames", lambda: 0)
    made = Job()
    yield made
    WATCHING[0].forget()
    assert Encoder.forward is FORWARD


def test_inputs_of_a_second_epoch_were_seen(job: Job) -> None:
    encoder = Encoder().eval()
    job.epochs(encoder, 1)
    assert (job.found()[0]["repeats"], job.found()[0]["seen"]) == (False, 0)
    job.epochs(encoder, 2)
    assert (job.found()[0]["repeats"], job.found()[0]["seen"]) == (True, 128)


def test_the_first_looks_come_soonest_and_their_cost_is_told(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_networks, "FIRST", 5)
    monkeypatch.setattr(frozen_networks, "COST_TIMES", (0, 10**9))
    job.epochs(Encoder().eval())
    assert job.found()[0]["calls"] == 5 and job.account.self_ns > 0


def test_two_are_watched_at_a_time(job: Job) -> None:
    networks = [Encoder().eval() for _ in range(3)]
    for _ in range(3):
        job.epochs(lambda batch: [network(batch) for network in networks], 1)
    assert [found["repeats"] for found in job.found()] == [True, True]


def test_the_call_is_named(job: Job) -> None:
    job.epochs(Encoder().eval())
    (found,) = job.found()
    assert found["class"] == "Encoder" and found["forward"] == f"{__file__}:Encoder.forward"
    assert found["repeats"] and (found["seen"], found["different"], found["alike"]) == (128, 256, 0.0)
    assert found["file"] == __file__ and linecache.getline(__file__, found["line"]).strip() == "network(batch)"


def test_a_frozen_part_of_a_trained_model_is_found(job: Job) -> None:
    model = Model()
    job.updated.update(map(id, model.head.parameters()))
    job.epochs(model, grad=True)
    assert [(found["class"], found["repeats"]) for found in job.found()] == [("Encoder", True)]


def learns(job: Job, encoder: Encoder) -> None:
    job.updated.update(map(id, encoder.parameters()))


@pytest.mark.parametrize(
    "change",
    [
        lambda job, encoder: encoder.train(),
        learns,
        lambda job, encoder: setattr(encoder, "noise", 0.1),
        lambda job, encoder: encoder.layer.add_module("inside", nn.Dropout()),
    ],
    ids=["in train mode", "in an optimizer", "draws random numbers", "a part in train mode"],
)
def test_others_are_none(job: Job, change: Any) -> None:
    encoder = Encoder().eval()
    change(job, encoder)
    job.epochs(encoder)
    assert job.found() == []


def test_one_that_gets_gradients_is_none(job: Job) -> None:
    job.epochs(Encoder().eval(), grad=True)
    assert job.found() == []


def test_a_teacher_that_follows_is_dropped(job: Job) -> None:
    encoder = Encoder().eval()
    job.epochs(encoder, after=lambda: encoder.layer.weight.mul_(0.999))
    assert job.found() == [] and Encoder.forward is FORWARD


def test_one_that_trains_later_is_dropped(job: Job) -> None:
    encoder = Encoder().eval()
    job.epochs(encoder, 1)
    encoder.train()
    job.epochs(encoder, 1)
    assert job.found() == []


def test_changing_inputs_do_not_repeat(job: Job) -> None:
    job.epochs(Encoder().eval(), data=lambda: DATA + torch.rand(256, 1))
    assert [found["repeats"] for found in job.found()] == [False]


def test_other_threads_and_traces_are_not_looked_at(job: Job) -> None:
    encoder = Encoder().eval()
    job.account.thread += 1
    job.epochs(encoder)
    job.account.thread -= 1
    with torch.no_grad(), torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        encoder(DATA)
    assert job.found() == [] and not any("index" in event.name for event in seen.events())


def test_random_numbers_are_as_without_it(job: Job) -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    encoder = Encoder().eval()
    with torch.no_grad():
        encoder(DATA)
    torch.manual_seed(3)
    with torch.no_grad():
        encoder(DATA)
    assert torch.equal(torch.rand(4), expected) and job.found()


def test_its_errors_pass_and_are_not_from_the_recorder(job: Job) -> None:
    encoder = Encoder().eval()
    job.epochs(encoder, 1)
    with pytest.raises(RuntimeError), torch.no_grad():
        encoder(torch.zeros(2, 3))


def test_it_stays_readable_for_torchscript(job: Job) -> None:
    network = nn.Sequential(Encoder().eval().layer).eval()
    with torch.no_grad():
        nn.Sequential(Encoder().eval()).eval()(DATA)
    assert torch.equal(torch.jit.script(network)(DATA), network(DATA))


def test_a_class_that_is_pickled_by_value_takes_nothing_of_the_recorder_with_it(job: Job) -> None:
    job.epochs(Encoder().eval(), 1)
    (held,) = [cell.cell_contents for cell in Encoder.forward.__closure__ or () if not callable(cell.cell_contents)]
    assert pickle.loads(pickle.dumps(held)) is False
    assert Encoder.forward.__globals__ is FORWARD.__globals__


class Decorated(Encoder):
    @torch.no_grad()
    def forward(self, x: Any) -> Any:
        return self.layer(x)


def test_the_function_is_the_one_that_samples_show() -> None:
    assert frozen_networks._function(Decorated.forward) == f"{__file__}:Decorated.forward"


def test_nothing_is_watched_once_dynamo_compiles(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen_networks, "compiled_frames", lambda: 1)
    job.epochs(Encoder().eval())
    assert job.found() == []
