"""Unit: linear operations in an expensive order, as autograd's graph shows them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")
functional = torch.nn.functional

from rn50_advisor.probes.rank.backward.backward_nodes import NODES_MAX, nodes_of  # noqa: E402
from rn50_advisor.probes.rank.backward.linear_orders import ENLARGED, POOLED, PRODUCTS, in_expensive_orders  # noqa: E402

BATCH, LONG, OF_WORD, CLASSES = 3, 40, 8, 24
LAYER, NARROWER = torch.nn.Linear(OF_WORD, CLASSES), torch.nn.Linear(OF_WORD, 2)
PIXELWISE, WIDER, AROUND = torch.nn.Conv2d(8, 2, 1), torch.nn.Conv2d(8, 16, 1), torch.nn.Conv2d(8, 2, 3, padding=1)


def words() -> Any:
    return torch.randn(BATCH, LONG, OF_WORD, requires_grad=True) * 1.0


def image() -> Any:
    return torch.randn(2, 8, 6, 6, requires_grad=True) * 1.0


def found(result: Any) -> dict[str, list[tuple[str, float]]]:
    """Kinds -> their nodes with what is spared of them."""
    kinds: dict[str, list[tuple[str, float]]] = {}
    for node, spared in in_expensive_orders(nodes_of([result.square().mean()], NODES_MAX) or []).items():
        kinds.setdefault(spared.kind, []).append((node.name(), round(spared.share, 3)))
    return {kind: sorted(each) for kind, each in kinds.items()}


def scores(q: Any, k: Any) -> Any:
    return q @ k.transpose(-1, -2)


PRODUCTS_SPARED = 1 - OF_WORD / LONG


@pytest.mark.parametrize(
    "product",
    [
        lambda q, k, v: scores(q, k) @ v,
        lambda q, k, v: torch.matmul(scores(q, k), v),
        lambda q, k, v: torch.einsum("bnm,bmd->bnd", torch.einsum("bnd,bmd->bnm", q, k), v),
        lambda q, k, v: (scores(q[:, None], k[:, None]) @ v[:, None]).squeeze(1),
        lambda q, k, v: (v.transpose(-1, -2) @ scores(k, q)).transpose(-1, -2),
    ],
    ids=["operator", "matmul", "einsum", "four dimensions", "from the other side"],
)
def test_a_product_of_three_matrices(product: Any) -> None:
    shares = found(product(words(), words(), words()))
    assert list(shares) == [PRODUCTS]
    assert shares[PRODUCTS] == [("BmmBackward0", pytest.approx(PRODUCTS_SPARED))] * 2


@pytest.mark.parametrize(
    "product",
    [
        lambda q, k, v: q @ (k.transpose(-1, -2) @ v),
        lambda q, k, v: scores(q, k).softmax(-1) @ v,
        lambda q, k, v: torch.cat([(s := scores(q, k)) @ v, s], -1),
        lambda q, k, v: scores(q, k).tril() @ v,
    ],
    ids=["cheap order", "softmax between", "used elsewhere", "mask between"],
)
def test_products_in_a_good_order_or_with_something_in_between(product: Any) -> None:
    assert found(product(words(), words(), words())) == {}


def test_low_rank_layers_are_in_the_cheap_order() -> None:
    down, up = torch.nn.Linear(64, 4, bias=False), torch.nn.Linear(4, 64, bias=False)
    assert found(up(down(torch.randn(100, 64)))) == {}
    assert list(found(torch.randn(100, 64, requires_grad=True) @ (down.weight.T @ up.weight.T))) == [PRODUCTS]


def test_batches_that_do_not_belong_together_are_no_product_of_three() -> None:
    layer, x = torch.nn.Linear(OF_WORD, LONG, bias=False), words()
    assert found(layer(x) @ words()) == {}


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: LAYER(x).mean(1),
        lambda x: LAYER(x).mean(dim=-2, keepdim=True),
        lambda x: LAYER(x).sum(1),
        lambda x: LAYER(x).mean((0, 1)),
    ],
    ids=["mean", "kept", "sum", "batch"],
)
def test_a_layer_whose_rows_are_averaged(pool: Any) -> None:
    shares = dict(found(pool(words()))[POOLED])
    rows = BATCH * LONG if pool(words()).dim() == 1 else LONG
    assert shares.pop("AddmmBackward0") == pytest.approx(1 - 1 / rows, abs=1e-3)
    assert list(shares.values()) == [pytest.approx(1 - OF_WORD / CLASSES, abs=1e-3)]


def test_averaging_more_features_takes_longer() -> None:
    assert ("MeanBackward1", 1 - OF_WORD / 2) in found(NARROWER(words()).mean(1))[POOLED]


@pytest.mark.parametrize(
    "pool",
    [
        lambda x: LAYER(x).relu().mean(1),
        lambda x: LAYER(x).mean(-1),
        lambda x: LAYER(x.mean(1)),
        lambda x: LAYER(x).amax(1),
        lambda x: LAYER(x).view(BATCH, LONG, 4, 6).mean(2),
        lambda x: torch.cat([(y := LAYER(x)).mean(1), y[:, 0]], 1),
    ],
    ids=["activation between", "features", "pooled before", "maximum", "heads", "used elsewhere"],
)
def test_a_layer_whose_rows_are_needed(pool: Any) -> None:
    assert found(pool(words())) == {}


@pytest.mark.parametrize(
    "pool",
    [lambda x: functional.adaptive_avg_pool2d(x, 1), lambda x: functional.avg_pool2d(x, 2), lambda x: x.mean((2, 3))],
)
def test_a_convolution_of_single_pixels_that_are_averaged(pool: Any) -> None:
    assert "ConvolutionBackward0" in dict(found(pool(WIDER(image())))[POOLED])
    assert found(pool(AROUND(image()))) == {}


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_a_convolution_of_single_pixels_after_enlarging(mode: str) -> None:
    shares = dict(found(PIXELWISE(functional.interpolate(image(), scale_factor=4, mode=mode)))[ENLARGED])
    assert shares.pop("ConvolutionBackward0") == pytest.approx(1 - 1 / 16, abs=1e-3)
    assert list(shares.values()) == [1 - 2 / 8]


@pytest.mark.parametrize("layer", [WIDER, AROUND], ids=["more channels", "neighbours"])
def test_other_convolutions_after_enlarging(layer: Any) -> None:
    assert found(layer(functional.interpolate(image(), scale_factor=4))) == {}


def test_a_convolution_before_enlarging_is_in_the_cheap_order() -> None:
    assert found(functional.interpolate(PIXELWISE(image()), scale_factor=4)) == {}


@pytest.mark.parametrize(
    "result",
    [
        lambda: LAYER(words()).mean(dim=None, keepdim=True),
        lambda: LAYER(words()[:, :0]).sum(1),
        lambda: scores(words()[:, :0], words()) @ words(),
        lambda: torch.nn.Linear(OF_WORD, 0)(words()).sum(1),
    ],
    ids=["of all numbers", "no rows", "an empty product", "no outputs"],
)
def test_empty_tensors_and_means_of_all_numbers_are_none(result: Any) -> None:
    assert found(result()) == {}


def test_the_layers_weight_is_told() -> None:
    nodes = nodes_of([LAYER(words()).mean(1).square().mean()], NODES_MAX)
    assert {id(each.weight) for each in in_expensive_orders(nodes or []).values()} == {id(LAYER.weight)}
