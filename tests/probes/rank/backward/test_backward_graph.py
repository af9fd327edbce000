"""What autograd's graph says of a backward pass: whose parameters lie where in it, and what only their gradients need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from rn50_advisor.probes.rank.backward import backward_graph  # noqa: E402
from rn50_advisor.probes.rank.backward.backward_graph import OTHERS, BackwardGraph, PassWork, read_graph  # noqa: E402

FIRST, SECOND = 2, 4
ROWS = 8


def owners(first: Any, second: Any) -> Callable[[Any], int]:
    bits = {**{id(p): FIRST for p in first.parameters()}, **{id(p): SECOND for p in second.parameters()}}
    return lambda parameter: bits.get(id(parameter), 0)


def of(roots: Any, first: Any, second: Any) -> BackwardGraph:
    graph = read_graph(roots, owners(first, second))
    assert graph is not None
    return graph


def linear(inputs: int, outputs: int) -> Any:
    return torch.nn.Linear(inputs, outputs)


def test_the_work_of_two_layers_by_hand() -> None:
    first, second = linear(3, 5), linear(5, 7)
    graph = of(second(first(torch.randn(ROWS, 3))).sum(), first, second)
    weights, through = ROWS * 3 * 5 + ROWS * 5 * 7, ROWS * 5 * 7
    points = 1 + ROWS * 5 + 5 + 15 + ROWS * 7 + 7 + 35  # the loss, and outputs, biases and weights of both
    assert graph.work() == PassWork(weights + through, points)
    assert graph.work(without=FIRST) == PassWork(ROWS * 5 * 7, 1 + ROWS * 7 + 7 + 35)
    assert graph.work(without=SECOND) == PassWork(ROWS * 3 * 5 + through, points - 7 - 35)
    assert graph.work(without=FIRST | SECOND) == PassWork(0, 0)


def test_where_they_lie() -> None:
    first, second = linear(3, 5), linear(5, 7)
    graph = of(second(first(torch.randn(ROWS, 3))).sum(), first, second)
    assert (graph.order(FIRST), graph.order(SECOND), graph.order(FIRST | SECOND)) == ("upstream", "downstream", "whole")
    assert graph.order(8) == ""


def test_layers_that_lie_around_others() -> None:
    outer, inner = torch.nn.ModuleList([linear(3, 3), linear(3, 3)]), linear(3, 3)
    assert of(outer[1](inner(outer[0](torch.randn(ROWS, 3)))).sum(), outer, inner).order(FIRST) == "both"


@pytest.mark.parametrize(
    ("layer", "kernel"),
    [
        (torch.nn.Conv1d(4, 4, 9, groups=4), (1, 9, True)),
        (torch.nn.Conv1d(4, 8, 9, groups=4), (1, 9, True)),
        (torch.nn.Conv2d(4, 4, (5, 3), groups=4), (2, 15, True)),
        (torch.nn.Conv2d(4, 8, 1), (2, 1, False)),
        (torch.nn.Conv1d(4, 4, 9, groups=2), (0, 0, False)),
        (torch.nn.Conv1d(4, 4, 9), (0, 0, False)),
        (torch.nn.Conv1d(4, 4, 9, groups=4, stride=2), (0, 0, False)),
        (torch.nn.Conv1d(4, 4, 9, groups=4, dilation=2), (0, 0, False)),
        (torch.nn.ConvTranspose1d(4, 4, 9, groups=4), (0, 0, False)),
    ],
)
def test_convolutions_of_single_channels_or_pixels_have_their_kernel(layer: Any, kernel: tuple[int, int, bool]) -> None:
    node = layer(torch.randn(2, 4, *[32] * (layer.weight.dim() - 2))).grad_fn
    *found, weight = backward_graph.convolved_kernel(node)
    assert tuple(found) == kernel and weight is (layer.weight if kernel[2] else None)


def test_a_kernel_that_is_computed_has_no_parameter() -> None:
    made = torch.randn(4, 1, 9, requires_grad=True).sin()
    node = torch.nn.functional.conv1d(torch.randn(2, 4, 32), made, groups=4).grad_fn
    assert backward_graph.convolved_kernel(node) == (1, 9, True, None)


def test_inputs_that_get_gradients_are_no_weights() -> None:
    first, second = linear(3, 5), linear(5, 7)
    rows = torch.randn(ROWS, 3, requires_grad=True)
    graph = of(second(first(rows)).sum(), first, second)
    assert graph.reaches == OTHERS | FIRST | SECOND
    assert graph.order(FIRST | SECOND) == "downstream"
    assert graph.work(FIRST | SECOND).products == ROWS * (3 * 5 + 5 * 7)


@pytest.mark.parametrize(
    ("layer", "inputs", "multiplications"),
    [
        (torch.nn.Conv2d(3, 8, 3, stride=2, padding=1), (2, 3, 16, 16), 2 * 8 * 8 * 3 * 8 * 9),
        (torch.nn.ConvTranspose2d(3, 8, 4, stride=2, padding=1), (2, 3, 16, 16), 2 * 16 * 16 * 3 * 8 * 16),
        (torch.nn.ConvTranspose2d(3, 8, 4), (2, 3, 1, 1), 2 * 3 * 8 * 16),
        (torch.nn.Conv1d(4, 8, 5, groups=2), (2, 4, 24), 2 * 20 * 2 * 8 * 5),
        (torch.nn.Linear(3, 8), (2, 7, 3), 14 * 3 * 8),
        (torch.nn.BatchNorm2d(3), (2, 3, 4, 4), 0),
    ],
)
def test_multiplications_of_layers(layer: Any, inputs: tuple[int, ...], multiplications: int) -> None:
    """Their own gradients; the inputs need none."""
    assert of(layer(torch.randn(inputs)).sum(), layer, torch.nn.Module()).work().products == multiplications


def test_looking_up_words_multiplies_nothing() -> None:
    words = torch.nn.Embedding(100, 8)
    assert of(words(torch.randint(100, (4, 6))).sum(), words, torch.nn.Module()).work() == PassWork(
        0, 1 + 4 * 6 * 8 + 800
    )


def test_weights_that_autocast_has_copied_are_known() -> None:
    first, second = linear(3, 5), linear(5, 7)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = second(first(torch.randn(ROWS, 3))).float().sum()
    graph = of(loss, first, second)
    assert graph.order(FIRST) == "upstream" and graph.work().products == ROWS * 3 * 5 + 2 * ROWS * 5 * 7


def test_several_losses_are_one_pass() -> None:
    first, second = linear(3, 5), linear(3, 7)
    rows = torch.randn(ROWS, 3)
    graph = of([first(rows).sum(), second(rows).sum()], first, second)
    assert graph.reaches == FIRST | SECOND and graph.order(FIRST) == ""
    assert graph.work(FIRST).products == ROWS * 3 * 7


def test_a_loss_without_graph_has_no_work() -> None:
    graph = of(torch.ones(()), torch.nn.Module(), torch.nn.Module())
    assert graph.reaches == 0 and graph.work() == PassWork(0, 0)


def test_large_graphs_are_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward_graph, "NODES_MAX", 20)
    layer = linear(3, 3)
    rows = torch.randn(ROWS, 3)
    for _ in range(20):
        rows = layer(rows)
    assert read_graph(rows.sum(), lambda parameter: FIRST) is None


def test_saved_tensors_are_not_unpacked() -> None:
    first, second = linear(3, 5), linear(5, 7)
    with torch.autograd.graph.saved_tensors_hooks(lambda kept: kept, lambda _: pytest.fail("unpacked")):
        loss = second(torch.relu(first(torch.randn(ROWS, 3)))).sum()
    assert of(loss, first, second).order(FIRST) == "upstream"
