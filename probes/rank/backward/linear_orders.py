"""Finds linear operations in succession that would compute less in another order, in autograd's graph of a loss.

A product of three matrices, a linear layer whose rows are then averaged, and one on the pixels of an enlarged image: the result is the same
if the other two matrices meet first, or if the layer comes after the mean, or before the image is enlarged. Only where nothing else in the
graph needs what is computed in between. Only shapes are read.
"""

from __future__ import annotations

from collections import Counter
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

from .backward_graph import LEAF, SHAPES, elements_made, is_weight, shape_made

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ...documents.model_documents import OrderKind

PRODUCTS: OrderKind = "products"
POOLED: OrderKind = "pooled"
ENLARGED: OrderKind = "enlarged"
SPARED_MIN = 0.3  # of the operations' work
_PRODUCTS = ("BmmBackward0", "MmBackward0")
_LINEAR = {"AddmmBackward0": 1, "LinearBackward0": 0, "MmBackward0": 0}  # which input has the rows
_CONVOLUTION = "ConvolutionBackward0"
_MEANS, _POOLS = ("MeanBackward1", "SumBackward1"), ("AdaptiveAvgPool2DBackward0", "AvgPool2DBackward0")
_ENLARGES = ("UpsampleBicubic2D", "UpsampleBilinear2D", "UpsampleNearest2D", "UpsampleNearestExact2D")
_NEGATIVE = 1 << 63  # from here on


class Spared(NamedTuple):
    """What the other order spares of a node's time; less than nothing where it takes longer. `weight`: of the layer, if there is one."""

    kind: OrderKind
    share: float
    weight: Any = None


class _Layer(NamedTuple):
    """A linear layer on rows or pixels. `node`: its operation; `at`: which input has its rows."""

    node: Any
    at: int
    weight: Any
    inputs: int
    outputs: int


def in_expensive_orders(nodes: list[Any]) -> dict[Any, Spared]:
    """The nodes of such operations. Raises where torch does not tell a shape."""
    uses = Counter(following for node in nodes for following, _ in node.next_functions)
    found: dict[Any, Spared] = {}
    for node in nodes:
        name = node.name()
        if name in _PRODUCTS:
            found.update(_of_three_matrices(node, uses))
        elif name in _MEANS or name in _POOLS:
            found.update(_averaged(node, uses))
        elif name == _CONVOLUTION:
            found.update(_enlarged(node, uses))
    return found


def _of_three_matrices(product: Any, uses: Counter[Any]) -> Iterator[tuple[Any, Spared]]:
    rows, columns = shape_made(product, 0)[-2:]
    for side, _ in enumerate(product.next_functions):
        before = _single(product, side, uses, lambda name: name in _PRODUCTS)
        if before is None:
            continue
        first, second = shape_made(before, 0)[-2:]
        between = _between(before)
        batch = prod(shape_made(before, 0)) * rows * columns == prod(shape_made(product, 0)) * first * second
        if not all((rows, columns, first, second, between)) or not batch:
            continue  # empty, or batches that do not belong together
        if first != rows if side == 0 else second != columns:
            continue
        now, other = (
            (rows * second * (between + columns), between * columns * (rows + second))
            if side == 0
            else (first * columns * (between + rows), rows * between * (first + columns))
        )
        spared = Spared(PRODUCTS, 1.0 - other / now)
        if spared.share >= SPARED_MIN:
            yield product, spared
            yield before, spared


def _averaged(mean: Any, uses: Counter[Any]) -> Iterator[tuple[Any, Spared]]:
    pixels = mean.name() in _POOLS
    node = _single(mean, 0, uses, lambda name: name == _CONVOLUTION if pixels else name in {_CONVOLUTION, *_LINEAR})
    layer = _layer(node)
    if layer is None or (pixels and any(getattr(mean, "_saved_padding", ()))):
        return
    averaged, of = shape_made(mean, 0), shape_made(*mean.next_functions[0])
    features = 1 if node.name() == _CONVOLUTION else len(of) - 1
    over = range(2, len(of)) if pixels else range(len(of)) if mean._saved_dim is None else mean._saved_dim
    if features in {_signed(dim) % len(of) for dim in over} or of[features] != layer.outputs:
        return  # of all features, or of parts of rows
    share = 1.0 - prod(averaged) / max(1, prod(of))
    if share >= SPARED_MIN:
        yield node, Spared(POOLED, share, layer.weight)
        yield mean, Spared(POOLED, 1.0 - layer.inputs / layer.outputs, layer.weight)


def _enlarged(node: Any, uses: Counter[Any]) -> Iterator[tuple[Any, Spared]]:
    layer = _layer(node)
    # to enlarge more channels than before takes what the convolution spares
    if layer is None or layer.outputs > layer.inputs:
        return
    larger = _single(node, layer.at, uses, lambda name: name.startswith(_ENLARGES))
    if larger is None or larger.next_functions[0][0] is None:
        return
    share = 1.0 - prod(shape_made(*larger.next_functions[0])) / max(1, prod(shape_made(larger, 0)))
    if share >= SPARED_MIN:
        yield node, Spared(ENLARGED, share, layer.weight)
        yield larger, Spared(ENLARGED, 1.0 - layer.outputs / layer.inputs, layer.weight)


def _single(node: Any, at: int, uses: Counter[Any], wanted: Callable[[str], bool]) -> Any:
    """The operation that made this input, below views of it, if nothing else in the graph uses its result."""
    before, place = node.next_functions[at]
    while before is not None and uses[before] == 1 and _is_view(before, place):
        before, place = before.next_functions[0]
    return before if before is not None and uses[before] == 1 and wanted(before.name()) else None


def _is_view(node: Any, place: int) -> bool:
    """True for what gives the same numbers another shape: matmul expands where nothing is repeated, einsum moves dimensions of one."""
    name = node.name()
    if name in SHAPES:
        return bool(node.next_functions)
    if name not in ("ExpandBackward0", "PermuteBackward0") or node.next_functions[0][0] is None:
        return False
    before = shape_made(*node.next_functions[0])
    if name == "ExpandBackward0":
        return elements_made(node, place) == prod(before)
    moved = [_signed(dim) % len(before) for dim in node._saved_dims]
    larger = [dim for dim in moved if before[dim] > 1]
    return larger == sorted(larger)


def _signed(dim: int) -> int:
    """As torch keeps dimensions: negative ones in 64 bits without a sign."""
    return dim - 2 * _NEGATIVE if dim >= _NEGATIVE else dim


def _between(product: Any) -> int:
    """The dimension that a product sums over; 0 if no input of it needs a gradient."""
    for side, (before, place) in enumerate(product.next_functions):
        if before is not None:
            return shape_made(before, place)[-1 - side]
    return 0


def _layer(node: Any) -> _Layer | None:
    """A linear layer, or a convolution of single pixels; None for other nodes, and for a layer without inputs or outputs."""
    if node is None:
        return None
    inputs = [before for before, _ in node.next_functions]
    convolution = node.name() == _CONVOLUTION
    at = 0 if convolution else _LINEAR.get(node.name(), len(inputs))
    weight = next((_leaf(each) for each in inputs[at + 1 :] if each is not None and is_weight(each)), None)
    if at >= len(inputs) or inputs[at] is None or weight is None or not weight.numel():
        return None
    shape = tuple(weight.shape)
    if convolution:
        plain = not node._saved_transposed and set(node._saved_stride) == {1} and not any(node._saved_padding)
        if not plain or len(shape) != 4 or prod(shape[2:]) != 1 or node._saved_groups != 1:
            return None
        return _Layer(node, at, weight, shape[1], shape[0])
    outputs = shape_made(node, 0)[-1]
    return _Layer(node, at, weight, prod(shape) // outputs, outputs) if len(shape) == 2 else None


def _leaf(node: Any) -> Any:
    while node.name() != LEAF:
        node = next(each for each, _ in node.next_functions if each is not None)
    return node.variable
