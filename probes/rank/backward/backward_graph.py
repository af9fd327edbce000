"""Reads from autograd's graph of a loss what its backward pass will compute: for which optimizers' parameters, and how much work.

Only shapes are read, never saved tensors: unpacking these may call the job's own hooks, or compute activations anew.
"""

from __future__ import annotations

import re
from math import prod
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

NODES_MAX = 5_000  # 3 us each
LEAF = "torch::autograd::AccumulateGrad"  # name of its node
OTHERS = 1  # bit of the leaves that belong to no known optimizer
# What a weight may pass through on its way into an operation.
_VIEWS = frozenset(
    (
        "TBackward0",
        "ToCopyBackward0",
        "ViewBackward0",
        "TransposeBackward0",
        "PermuteBackward0",
        "ReshapeAliasBackward0",
    )
)


# Operations that take parts of a tensor, and those that compute each row (the last dimension) of a tensor by itself.
_SELECTIONS = ("SelectBackward", "SliceBackward", "IndexBackward", "IndexSelectBackward")
_ROW_BY_ROW = re.compile(
    "(Add|Addmm|Celu|Clone|Div|Elu|Gelu|Glu|Hardsigmoid|Hardswish|Hardtanh|LeakyRelu|Linear|LogSigmoid|LogSoftmax|Mish|Mm|Mul"
    "|NativeDropout|NativeLayerNorm|Neg|Relu|ReshapeAlias|RmsNorm|Selu|Sigmoid|Silu|Slice|Softmax|Softplus|Sub|Tanh|Threshold|ToCopy"
    "|UnsafeView|View)Backward0"
)
_SELECTED_MAX = 64  # nodes before one selection
_JOIN, _REPEATS = (
    "CatBackward0",
    ("ExpandBackward", "GatherBackward", "IndexBackward", "IndexSelectBackward", "RepeatBackward"),
)
SHAPES = frozenset(
    (
        "CloneBackward0",
        "ReshapeAliasBackward0",
        "SqueezeBackward1",
        "UnsafeViewBackward0",
        "UnsqueezeBackward0",
        "ViewBackward0",
    )
)
_BY_INDEX = ("Gather", "Index")
_REPEATED_MIN = 0.3  # of a product's rows
_WITH_ROWS = {"MmBackward0": 0, "LinearBackward0": 0, "AddmmBackward0": 1}  # which input has the rows of a product


class PassWork(NamedTuple):
    """`products`: multiplications of matrix products and convolutions; `points`: elements of the other tensors that are written."""

    products: int
    points: int


class _Weight(NamedTuple):
    owner: int  # bit of its optimizer
    shape: tuple[int, ...]


class _Node(NamedTuple):
    reaches: int  # bits of the optimizers whose parameters lie behind it
    weight: _Weight | None  # it only hands on the gradient of this leaf
    points: int
    weights: tuple[tuple[int, int, int], ...]  # owner, multiplications and elements of each weight of this operation
    inputs: tuple[int, ...]  # what `reaches` of each other input
    again: bool = False  # an earlier pass went through it


class BackwardGraph:
    """The nodes of one backward pass, inputs first. Keeps no object of the job."""

    def __init__(self, nodes: list[_Node]) -> None:
        self._nodes = nodes
        self.reaches = nodes[-1].reaches if nodes else 0

    def work(self, without: int = 0, *, again: bool = False) -> PassWork:
        """The work of the pass if the parameters with these bits required no gradients. `again`: of nodes with an earlier pass alone."""
        products = points = 0
        for node in self._nodes:
            if node.weight is not None or not node.reaches & ~without or (again and not node.again):
                continue
            points += node.points
            for owner, multiplications, elements in node.weights:
                if owner & ~without:
                    products += multiplications
                    points += elements
            if any(reached & ~without for reached in node.inputs):
                products += sum(multiplications for _, multiplications, _ in node.weights)
        return PassWork(products, points)

    def order(self, without: int) -> str:
        """Where these parameters lie as seen from what else gets gradients.

        `upstream`: the pass goes on to them behind all the others; `downstream`: it goes through their layers to the others;
        `whole`: nothing else gets gradients. Empty if they are not in this graph.
        """
        if not self.reaches & without:
            return ""
        if not self.reaches & ~without:
            return "whole"
        kept = [node for node in self._nodes if node.weight is None and node.reaches & ~without]
        upstream = any(reached and not reached & ~without for node in kept for reached in node.inputs)
        downstream = any(owner & without for node in kept for owner, _, _ in node.weights)
        return "both" if upstream and downstream else "upstream" if upstream else "downstream" if downstream else ""


def read_graph(
    roots: Any, owner: Callable[[Any], int], again: Callable[[Any], bool] = lambda _: False
) -> BackwardGraph | None:
    """The graph of these tensors; None if it is too large. `owner`: the bit of a leaf, or 0. `again`: had a node an earlier pass?"""
    tensors = roots if isinstance(roots, (list, tuple)) else [roots]
    starts = [root.grad_fn for root in tensors if getattr(root, "grad_fn", None) is not None]
    places: dict[Any, int] = {}  # node -> its index
    nodes: list[_Node] = []
    todo: list[tuple[Any, bool]] = [(start, False) for start in starts]
    seen = set(starts)
    while todo:
        node, ready = todo.pop()
        if node in places:
            continue
        after = [following for following, _ in node.next_functions if following is not None]
        if ready:
            places[node] = len(nodes)
            found = _described(node, [nodes[places[each]] for each in after if each in places], owner)
            nodes.append(found._replace(again=again(node)))
            continue
        todo.append((node, True))
        for each in after:
            if each not in places:
                seen.add(each)
                todo.append((each, False))
        if len(seen) > NODES_MAX:
            return None
    if len(starts) > 1:
        nodes.append(_Node(_joined(nodes), None, 0, (), ()))
    return BackwardGraph(nodes)


def on_repeated_rows(nodes: list[Any]) -> dict[Any, float]:
    """Products with a weight whose rows are repeated ones, joined or not: `linear(cat([a[source], b[target]]))`; and these joins.

    With the share that `linear(a)` and `linear(b)`, repeated afterwards, would spare.
    """
    found: dict[Any, float] = {}
    for product in nodes:
        inputs = [each for each, _ in product.next_functions]
        at = _WITH_ROWS.get(product.name(), len(inputs))
        if at >= len(inputs) or inputs[at] is None or not any(map(is_weight, filter(None, inputs[at + 1 :]))):
            continue
        node, place = _below_views(*product.next_functions[at])
        joins = node is not None and node.name() == _JOIN
        parts = node.next_functions if joins else [(node, place)]
        wide = _columns(product, 0)
        rows = [(_repeats(*_below_views(*part), wide), elements_made(*part)) for part in parts if part[0] is not None]
        spared = sum(share * elements for share, elements in rows) / max(1, elements_made(*product.next_functions[at]))
        if spared >= _REPEATED_MIN:
            found[product] = spared
            if joins:
                found[node] = max(spared, found.get(node, 0.0))
    return found


def transformed_length(node: Any) -> int:
    """The last transformed length of a Fourier transform; 0 of other nodes."""
    if not node.name().startswith("Fft"):
        return 0
    axis = node._saved_dim[-1]
    if not node.name().startswith("FftR2C"):
        return int(node._input_metadata[0].shape[axis])
    return int(shape_made(*node.next_functions[0])[axis])


def convolved_kernel(node: Any) -> tuple[int, int, bool, Any]:
    """Dimensions, size and parameter of the kernel of a convolution in steps of one, and whether it takes each channel by itself.

    Of the others, only those with a kernel of one number. The parameter is None where the kernel is computed; zeros for other nodes.
    """
    none = 0, 0, False, None
    if node.name() != "ConvolutionBackward0" or node._saved_transposed:
        return none
    weight, place = node.next_functions[1]
    shape = () if weight is None else shape_made(weight, place)
    size, single = prod(shape[2:]), node._saved_groups > 1 and shape[1:2] == (1,)
    if len(shape) < 3 or {*node._saved_stride, *node._saved_dilation} != {1} or (size > 1 and not single):
        return none
    return len(shape) - 2, size, single, getattr(weight, "variable", None) if single else None


def _below_views(node: Any, place: int) -> tuple[Any, int]:
    while node is not None and node.name() in SHAPES and node.next_functions:
        node, place = node.next_functions[0]
    return node, place


def _repeats(node: Any, place: int, wide: int) -> float:
    """Share of the rows that are there before, as what repeats them has made them of fewer ones.

    Taking rows by an index costs by their columns: none of these are worth it if the product makes them wider.
    """
    if node is None or not node.name().startswith(_REPEATS):
        return 0.0
    if node.name().startswith(_BY_INDEX) and wide > _columns(node, place):
        return 0.0
    before, at = node.next_functions[0]
    if before is None:
        return 0.0
    before, at = _below_views(before, at)
    return max(0.0, 1.0 - elements_made(before, at) / max(1, elements_made(node, place)))


def _columns(node: Any, place: int) -> int:
    return int(node._input_metadata[place].shape[-1])


def before_selections(nodes: list[Any]) -> dict[Any, float]:
    """The nodes of layers that computed each row by itself, and of whose rows only some were used; with the share that was not.

    Up to the first operation that mixes rows or joins two tensors.
    """
    found: dict[Any, float] = {}
    for selection in nodes:
        if not selection.name().startswith(_SELECTIONS):
            continue
        node, place = selection.next_functions[0]
        if not _by_row(node):
            continue
        unused = 1.0 - elements_made(selection, 0) / max(1, elements_made(node, place))
        for _ in range(_SELECTED_MAX):
            if not _by_row(node) or found.get(node, -1.0) >= unused:
                break  # the parts of one tensor lead to the same nodes
            inputs = [each for each, _ in node.next_functions]
            before = [n for n, each in enumerate(inputs) if each is not None and not is_weight(each)]
            if before and before[0] != _WITH_ROWS.get(node.name(), before[0]):
                break  # a matrix times these rows, as of a graph's edges, mixes them
            found[node] = unused
            node = inputs[before[0]] if len(before) == 1 else None
    return found


def _by_row(node: Any) -> bool:
    return node is not None and _ROW_BY_ROW.fullmatch(node.name()) is not None


def elements_made(node: Any, place: int) -> int:
    """Elements of the tensor that a node has made as its output `place`. Raises where torch does not say: that is not nothing."""
    return prod(shape_made(node, place))


def shape_made(node: Any, place: int) -> tuple[int, ...]:
    """The shape of the tensor that a node has made as its output `place`. Raises where torch does not say."""
    return tuple(node.variable.shape if node.name() == LEAF else node._input_metadata[place].shape)


def is_weight(node: Any) -> bool:
    """A leaf, or a view of one."""
    after = [each for each, _ in node.next_functions if each is not None]
    return node.name() == LEAF or (node.name() in _VIEWS and len(after) == 1 and after[0].name() == LEAF)


def _joined(nodes: list[_Node]) -> int:
    reaches = 0
    for node in nodes:
        reaches |= node.reaches
    return reaches


def _described(node: Any, after: list[_Node], owner: Callable[[Any], int]) -> _Node:
    variable = getattr(node, "variable", None)
    if variable is not None and not after:
        bit = owner(variable) or OTHERS
        return _Node(bit, _Weight(bit, tuple(variable.shape)), 0, (), ())
    reaches = _joined(after)
    if len(after) == 1 and after[0].weight is not None and node.name() in _VIEWS:
        return _Node(reaches, after[0].weight, 0, (), ())
    metadata = getattr(node, "_input_metadata", None)
    shape = tuple(metadata[0].shape) if metadata else ()
    weights, inputs = [], []
    for each in after:
        if each.weight is None or each.weight.owner == OTHERS:
            inputs.append(each.reaches)
        else:
            weights.append(
                (each.weight.owner, _multiplications(node, shape, each.weight.shape), prod(each.weight.shape))
            )
    return _Node(reaches, None, prod(shape), tuple(weights), tuple(inputs))


def _multiplications(node: Any, made: tuple[int, ...], weight: tuple[int, ...]) -> int:
    """Of this operation's forward pass, which made a tensor of this shape with this weight."""
    name = node.name()
    if len(weight) < 2 or len(made) < 2 or name.startswith("Embedding"):
        return 0
    if not name.startswith("Convolution"):
        return prod(weight) * prod(made[:-1])
    places = made[2:]
    if node._saved_transposed:  # each place of its input meets each weight
        places = tuple(map(_places_before, places, weight[2:], node._saved_stride, node._saved_padding))
    return prod(weight) * made[0] * prod(places)


def _places_before(size: int, kernel: int, stride: int, padding: int) -> int:
    """Of which a transposed convolution made `size`, in one dimension."""
    return max(1, (size + 2 * padding - kernel) // stride + 1)
