"""What an optimizer steps and keeps, in bytes."""

from __future__ import annotations

from types import SimpleNamespace

from probes.rank.holdings import describe_holdings


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
    }


def test_shards_of_a_larger_parameter_say_nothing_of_this_ranks_memory() -> None:
    shard = Tensor(1000, 4)
    shard.to_local = lambda: shard
    assert describe_holdings(SimpleNamespace(param_groups=[{"params": [shard]}], state={})) == {}
