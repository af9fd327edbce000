"""Bytes that an optimizer updates and keeps."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from rn50_advisor.probes.rank.facts.optimizer_holdings import (
    OptimizerPlaces,
    describe_convolutions,
    describe_holdings,
    describe_optimizer,
    held_at_end,
)


class Tensor:
    def __init__(
        self, count: int, size: int, device: str = "cuda:0", grad: Tensor | None = None, *, learns: bool = True
    ) -> None:
        self.count, self.size, self.device, self.grad, self.is_sparse = count, size, device, grad, False
        self.requires_grad = learns

    def numel(self) -> int:
        return self.count

    def element_size(self) -> int:
        return self.size


def test_parameters_gradients_and_state_are_counted_apart() -> None:
    half = Tensor(1000, 2, grad=Tensor(1000, 2))
    frozen = Tensor(10, 4, learns=False)
    state = {half: {"exp_avg": Tensor(1000, 4), "exp_avg_sq": Tensor(1000, 4), "step": Tensor(1, 4, "cpu"), "n": 3}}
    optimizer = SimpleNamespace(param_groups=[{"params": [half]}, {"params": [frozen]}], state=state)
    assert describe_holdings(optimizer) == {
        "device": "cuda:0",
        "elements": 1010,
        "parameter_bytes": 2040,
        "learning_bytes": 2000,
        "gradient_bytes": 2000,
        "state_bytes": 8000,
        "momentum": 0,
    }


def test_shards_of_a_larger_parameter_say_nothing_of_this_ranks_memory() -> None:
    shard = Tensor(1000, 4)
    shard.to_local = lambda: shard
    assert describe_holdings(SimpleNamespace(param_groups=[{"params": [shard]}], state={})) == {}


class Optimizer:
    def __init__(self, parameters: list[Tensor]) -> None:
        self.param_groups, self.state = [{"params": parameters, "momentum": 0.9}], {}


class Module:
    def __init__(self, *parameters: Tensor) -> None:
        self.own = parameters

    def parameters(self) -> tuple[Tensor, ...]:
        return self.own


TORCH = SimpleNamespace(optim=SimpleNamespace(Optimizer=Optimizer), nn=SimpleNamespace(Module=Module))


class Trainer:
    def __init__(self, **kept: object) -> None:
        vars(self).update(kept)

    def train(self, message: str, optimizer: object = None) -> None:
        head = Module(Tensor(10, 4))
        self.forward(message, Module(Tensor(1000, 4, learns=False), *head.parameters()))

    def forward(self, message: str, model: Module) -> None:
        raise RuntimeError(message)


def failing(optimizer: Optimizer | None, message: str = "CUDA out of memory.", **kept: object) -> BaseException:
    """An exception whose outer frame knows the optimizer and two models, the larger one inside; `kept` by the trainer."""
    try:
        Trainer(**kept).train(message, optimizer)
    except RuntimeError as error:
        return error
    raise AssertionError


def test_the_frames_of_the_last_exception_know_optimizer_or_model() -> None:
    weights = Tensor(1000, 4, grad=Tensor(1000, 4))
    held = held_at_end(TORCH, failing(Optimizer([weights])))
    assert (held["class"], held["parameter_bytes"], held["gradient_bytes"], held["momentum"]) == (
        "Optimizer",
        4000,
        4000,
        1,
    )
    assert held["model_bytes"] == 4040
    model = held_at_end(TORCH, failing(None))
    assert "class" not in model and (model["parameter_bytes"], model["model_bytes"]) == (40, 4040), "what learns of it"
    assert held_at_end(TORCH, RuntimeError("raised nowhere")) == {}


def test_a_trainer_that_keeps_its_optimizer_is_asked_for_it_once() -> None:
    inner = Optimizer([Tensor(1000, 4)])
    around = Optimizer([])
    around.param_groups = inner.param_groups
    held = held_at_end(TORCH, failing(inner, own=inner, wrapped=around))
    assert held["class"] == "Optimizer" and held["parameter_bytes"] == 4000


@pytest.mark.parametrize(
    ("message", "watched", "held"),
    [
        ("CUDA out of memory.", "cuda:0", ("cuda:0", 4000, 8000, 4040)),
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total …", "cuda:0", ("cuda:1", 40, 80, 0)),
        ("Allocation on device 1 would exceed allowed memory. (out of memory)", "", ("cuda:1", 40, 80, 0)),
        ("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has a total …", "cuda:0", ("cuda:2", 0, 0, 0)),
        ("no device named", "", ("cpu", 40000, 0, 4040)),
    ],
)
def test_only_what_lies_on_the_device_that_is_full_counts(message: str, watched: str, held: tuple[object, ...]) -> None:
    first, second, host = Tensor(1000, 4), Tensor(10, 4, "cuda:1"), Tensor(10_000, 4, "cpu")
    optimizer = Optimizer([first, second, host])
    optimizer.state = {first: {"m": Tensor(2000, 4)}, second: {"m": Tensor(20, 4, "cuda:1"), "v": Tensor(9, 4, "cpu")}}
    found = held_at_end(TORCH, failing(optimizer, message), watched)
    names = ("device", "parameter_bytes", "state_bytes", "model_bytes")
    assert tuple(found[name] for name in names) == held


class Weight:
    """Only what is asked of one: how its memory lies."""

    def __init__(self, dims: int, dtype: str = "torch.float32", *, last: bool = False) -> None:
        self.dims, self.dtype, self.last = dims, dtype, last

    def dim(self) -> int:
        return self.dims

    def is_contiguous(self, memory_format: str = "") -> bool:
        return bool(memory_format) is self.last


def convolutions(*weights: Weight) -> dict[str, object]:
    torch = SimpleNamespace(channels_last="channels_last")
    found = describe_convolutions(torch, SimpleNamespace(param_groups=[{"params": list(weights)}]))
    return found.get("convolutions", {})


def test_weights_of_four_dimensions_describe_unobserved_convolutions() -> None:
    found = convolutions(Weight(1), Weight(2), Weight(4), Weight(4, last=True), Weight(4, "torch.bfloat16", last=True))
    assert found == {"weights": 3, "dtypes": ["bfloat16", "float32"], "channels_last": 2, "channels_first": 1}
    assert convolutions(Weight(1), Weight(2)) == {"weights": 0, "dtypes": [], "channels_last": 0, "channels_first": 0}


def test_sharded_parameters_are_not_described() -> None:
    assert convolutions(Weight(1)) == {}, "flat ones"
    shard = Weight(4)
    shard.to_local = lambda: shard  # type: ignore[attr-defined]
    assert convolutions(shard) == {}


@pytest.mark.torch
@pytest.mark.parametrize("sparse", [False, True])
def test_sparse_gradients_are_described_since_they_have_no_fused_update(sparse: bool) -> None:
    import torch

    words = torch.nn.Embedding(10, 4, sparse=sparse)
    words(torch.tensor([1, 2])).sum().backward()
    facts = describe_optimizer(torch.optim.SGD(words.parameters(), lr=0.1))
    assert (facts["class"], facts["module"], facts["sparse"], facts["parameters"]) == (
        "SGD",
        "torch.optim.sgd",
        sparse,
        1,
    )


@pytest.mark.torch
def test_groups_of_the_same_settings_are_counted() -> None:
    import torch

    weights = [torch.nn.Parameter(torch.ones(2)) for _ in range(6)]
    groups = [{"params": [each], "lr": 0.1 * (n % 2 + 1), "param_names": [f"w{n}"]} for n, each in enumerate(weights)]
    made = torch.optim.AdamW(groups, betas=(0.9, 0.99))
    facts = describe_optimizer(made)
    assert (facts["groups"], facts["settings"], facts["parameters"]) == (6, 2, 6)
    for group in made.param_groups:
        group["lr"] = torch.tensor(0.1)
    assert describe_optimizer(made)["settings"] == 6, "what a tensor holds is not read"


def test_the_line_that_made_an_optimizer_is_known() -> None:
    places, mine, other = OptimizerPlaces(), Tensor(1, 4), Tensor(1, 4)
    places.made(mine)
    place = places.of(mine)
    line = Path(__file__).read_text().splitlines()[place["line"] - 1]
    assert place["file"] == __file__ and "places.made(mine)" in line
    assert places.of(other) == {}
