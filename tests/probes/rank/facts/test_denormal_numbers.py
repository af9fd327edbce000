"""Denormal numbers are counted in a few tensors of an optimizer at a time, which stay what they are."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from fact_paper import Paper  # noqa: E402
from rn50_advisor.probes.rank.facts.denormal_numbers import (  # noqa: E402
    NUMBERS,
    PLACES,
    ROWS_MAX,
    Denormals,
)
from rn50_advisor.probes.rank.layout import DENORMAL_FIELDS  # noqa: E402

TINY = 1e-39
MOST = PLACES * NUMBERS


class Observations:
    """Observations as often as it is told, whatever the time."""

    def __init__(self) -> None:
        self.paper, self.step = Paper(), 0
        self.denormals = Denormals(self.paper)  # type: ignore[arg-type]

    def observe(self, *optimizers: Any, times: int = 1) -> None:
        for _ in range(times):
            self.step += 10
            self.denormals._due_ns = 0
            for optimizer in optimizers:
                self.denormals.observe(optimizer, self.step)

    @property
    def rows(self) -> list[dict[str, int]]:
        return [dict(zip(DENORMAL_FIELDS, row, strict=True)) for row in self.paper.values.get("denormals", [])]


def trained(*shape: int, like: Callable[[Any], Any] = lambda tensor: tensor) -> Any:
    """An optimizer after its first step, with one parameter of this shape."""
    parameter = torch.nn.Parameter(like(torch.ones(shape or (40, 50))))
    parameter.grad = torch.ones_like(parameter)
    optimizer = torch.optim.SGD([parameter], lr=0.1, momentum=0.9)
    optimizer.step()
    return optimizer


def parts(optimizer: Any) -> dict[str, Any]:
    (parameter,) = optimizer.param_groups[0]["params"]
    return {
        "weights": parameter.data,
        "gradients": parameter.grad,
        "state": optimizer.state[parameter]["momentum_buffer"],
    }


@pytest.mark.parametrize("kind", ["weights", "gradients", "state"])
def test_denormal_numbers_are_counted_by_kind(kind: str) -> None:
    optimizer, observations = trained(), Observations()
    parts(optimizer)[kind].fill_(-TINY)
    observations.observe(optimizer)
    (row,) = observations.rows
    assert {name: row[name] for name in ("weights", "gradients", "state")} == dict.fromkeys(parts(optimizer), MOST)
    denormal = {name: row[f"denormal_{name}"] for name in parts(optimizer)}
    assert denormal == {**dict.fromkeys(parts(optimizer), 0), kind: MOST}


@pytest.mark.parametrize(
    ("value", "denormal"),
    [(0.0, False), (-0.0, False), (1.1754942e-38, True), (1.1754944e-38, False), (1e-45, True), (float("nan"), False)],
)
def test_a_number_is_denormal_below_the_smallest_normal_one(value: float, denormal: bool) -> None:
    optimizer, observations = trained(), Observations()
    parts(optimizer)["state"].fill_(value)
    observations.observe(optimizer)
    assert (observations.rows[0]["denormal_state"] > 0) is denormal


@pytest.mark.parametrize("shape", [(256, 512), (512, 256), (40, 512), (512, 40), (300, 1000), (64, 64)])
@pytest.mark.parametrize("axis", [0, 1])
def test_a_share_of_rows_or_of_columns_is_found_as_such(shape: tuple[int, int], axis: int) -> None:
    optimizer, observations = trained(*shape), Observations()
    state = parts(optimizer)["state"]
    state.narrow(axis, 0, state.shape[axis] // 4).fill_(TINY)
    observations.observe(optimizer, times=4)
    row = {name: sum(each[name] for each in observations.rows) for name in DENORMAL_FIELDS}
    assert row["denormal_state"] / row["state"] == pytest.approx(0.25, abs=0.05)


def test_a_large_parameter_is_read_more_often_than_a_small_one() -> None:
    large, small = torch.nn.Parameter(torch.ones(900)), torch.nn.Parameter(torch.full((100,), TINY))
    observations = Observations()
    observations.observe(torch.optim.SGD([large, small], lr=0.1), times=25)
    denormal = sum(row["denormal_weights"] for row in observations.rows)
    assert denormal / 100 == pytest.approx(10, abs=6), "a tenth of the 100 places"


def test_flushing_is_that_of_the_training_thread_and_hides_no_number() -> None:
    optimizer, observations = trained(), Observations()
    parts(optimizer)["state"].fill_(TINY)

    def flushing() -> None:
        assert torch.set_flush_denormal(True)
        observations.observe(optimizer)

    thread = threading.Thread(target=flushing)  # this one goes on as it was
    thread.start()
    thread.join()
    observations.observe(optimizer)
    assert [(row["flushed"], row["denormal_state"]) for row in observations.rows] == [(1, MOST), (0, MOST)]


class Subclass(torch.Tensor):  # type: ignore[misc,name-defined]
    pass


@pytest.mark.parametrize(
    "like",
    [
        lambda tensor: tensor.double(),
        lambda tensor: tensor.to("meta"),
        lambda tensor: tensor.t(),
        lambda tensor: tensor.as_subclass(Subclass),
        lambda tensor: tensor[:0],
    ],
    ids=["doubles", "meta", "transposed", "a subclass", "empty"],
)
def test_other_tensors_are_passed_over(like: Callable[[Any], Any]) -> None:
    optimizer, observations = trained(like=like), Observations()
    observations.observe(optimizer)
    assert observations.rows == [] and observations.paper.missed == []


def test_a_sparse_gradient_is_passed_over() -> None:
    embedding, observations = torch.nn.Embedding(10, 4, sparse=True), Observations()
    embedding(torch.tensor([1])).sum().backward()
    observations.observe(torch.optim.SGD(embedding.parameters(), lr=0.1))
    assert observations.rows[0]["weights"] > 0 == observations.rows[0]["gradients"]


def test_released_memory_is_passed_over() -> None:
    optimizer, observations = trained(), Observations()
    parts(optimizer)["gradients"].untyped_storage().resize_(0)
    observations.observe(optimizer)
    assert observations.rows[0]["gradients"] == 0 < observations.rows[0]["weights"] and observations.paper.missed == []


def test_views_and_channels_last_are_read_in_their_own_memory() -> None:
    observations, flat = Observations(), torch.cat([torch.ones(500), torch.full((500,), TINY)])
    pictures = torch.full((4, 3, 5, 5), TINY).to(memory_format=torch.channels_last)
    for tensor in (flat[:500], flat[500:].view(25, 20), pictures):
        observations.observe(torch.optim.SGD([torch.nn.Parameter(tensor)], lr=0.1))
    assert [row["denormal_weights"] / row["weights"] for row in observations.rows] == [0.0, 1.0, 1.0]


def test_nothing_of_the_job_is_changed() -> None:
    optimizer, observations = trained(), Observations()
    parameter = optimizer.param_groups[0]["params"][0]
    before = [tensor.clone() for tensor in parts(optimizer).values()]
    state, nodes, version = torch.get_rng_state(), torch.autograd._get_sequence_nr(), parameter._version
    with torch.enable_grad():
        observations.observe(optimizer, times=3)
    assert all(torch.equal(was, now) for was, now in zip(before, parts(optimizer).values(), strict=True))
    assert torch.equal(torch.get_rng_state(), state) and torch.is_grad_enabled()
    assert (torch.autograd._get_sequence_nr(), parameter._version, parameter.grad_fn) == (nodes, version, None)
    assert list(optimizer.state) == [parameter]


def test_many_looks_share_rows() -> None:
    optimizer, observations = trained(), Observations()
    observations.observe(optimizer, times=3 * ROWS_MAX)
    assert len(observations.rows) <= ROWS_MAX
    assert sum(row["looks"] for row in observations.rows) == 3 * ROWS_MAX
    assert [row["step"] for row in observations.rows] == list(range(10, 30 * ROWS_MAX, 40))


def test_facts_are_written_at_growing_intervals_while_there_are_denormal_numbers() -> None:
    optimizer, observations = trained(), Observations()
    observations.observe(optimizer, times=5)
    assert observations.paper.written == 0
    parts(optimizer)["state"].fill_(TINY)
    observations.observe(optimizer, times=9)
    assert observations.paper.written == 4
