"""What an optimizer steps and keeps, in bytes."""

from __future__ import annotations

from types import SimpleNamespace

from probes.rank.holdings import describe_convolutions, describe_holdings, held_at_end


class Tensor:
    def __init__(self, count: int, size: int, device: str = "cuda:0", grad: Tensor | None = None) -> None:
        self.count, self.size, self.device, self.grad, self.is_sparse = count, size, device, grad, False

    def numel(self) -> int:
        return self.count

    def element_size(self) -> int:
        return self.size


def test_parameters_gradients_and_state_are_counted_apart() -> None:
    half = Tensor(1000, 2, grad=Tensor(1000, 2))
    frozen = Tensor(10, 4)
    state = {half: {"exp_avg": Tensor(1000, 4), "exp_avg_sq": Tensor(1000, 4), "step": Tensor(1, 4, "cpu"), "n": 3}}
    optimizer = SimpleNamespace(param_groups=[{"params": [half]}, {"params": [frozen]}], state=state)
    assert describe_holdings(optimizer) == {
        "elements": 1010,
        "parameter_bytes": 2040,
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


def failing(optimizer: Optimizer | None) -> BaseException:
    """An exception whose outer frame knows the optimizer and two models, the larger one inside."""

    def forward(model: Module) -> None:
        raise RuntimeError("CUDA out of memory.")

    def train(optimizer: Optimizer | None) -> None:
        head = Module(Tensor(10, 4))
        forward(Module(Tensor(1000, 4), *head.parameters()))

    try:
        train(optimizer)
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
    assert held_at_end(TORCH, failing(None))["parameter_bytes"] == 4040
    assert held_at_end(TORCH, RuntimeError("raised nowhere")) == {}


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


def test_weights_of_four_dimensions_tell_of_convolutions_that_nobody_saw() -> None:
    found = convolutions(Weight(1), Weight(2), Weight(4), Weight(4, last=True), Weight(4, "torch.bfloat16", last=True))
    assert found == {"weights": 3, "dtypes": ["bfloat16", "float32"], "channels_last": 2, "channels_first": 1}
    assert convolutions(Weight(1), Weight(2)) == {"weights": 0, "dtypes": [], "channels_last": 0, "channels_first": 0}


def test_of_shards_nobody_knows_what_they_are_parts_of() -> None:
    assert convolutions(Weight(1)) == {}, "flat ones"
    shard = Weight(4)
    shard.to_local = lambda: shard  # type: ignore[attr-defined]
    assert convolutions(shard) == {}
