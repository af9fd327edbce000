"""A rank's facts about the model that it trains, its optimizers, and its backward passes."""

from __future__ import annotations

from typing import Literal, TypedDict

from .bounded_numbers import Number, Whole
from .code_places import CodePlace

_Classed = TypedDict("_Classed", {"class": str}, total=False)
LayerKind = Literal["conv", "linear"]


class LayerFacts(TypedDict, total=False):
    """The first convolution or linear layer of a step. `after_autocast`: later layers were also checked for an enclosing autocast."""

    device: str
    input: str
    weight: str
    autocast: str | None
    after_autocast: bool
    input_layout: str
    weight_layout: str
    shape: list[Whole]
    weight_shape: list[Whole]
    varies: bool
    again: bool


class ModelFacts(_Classed, total=False):
    """The outermost module. `uncached`: it generates without a cache of keys and values, by its settings."""

    wrapped: str | None
    parameters: Whole
    bytes: dict[str, Whole]  # by device
    dtypes: list[str]
    layers: dict[str, Whole]  # count by kind
    uncached: bool
    channels_last_weights: Whole
    channels_first_weights: Whole


class ConvolutionWeights(TypedDict, total=False):
    weights: Whole
    dtypes: list[str]
    channels_last: Whole
    channels_first: Whole


class HeldMemory(_Classed, total=False):
    """Bytes that an optimizer updates and keeps on one device; `momentum` is 1 if it creates momentum buffers."""

    device: str
    elements: Whole
    parameter_bytes: Whole
    learning_bytes: Whole
    gradient_bytes: Whole
    state_bytes: Whole
    momentum: Whole
    model_bytes: Whole


class OptimizerFacts(HeldMemory, CodePlace, total=False):
    """The place is the line that made it."""

    module: str  # the module of its class
    foreach: bool | None
    fused: bool | None
    groups: Whole
    settings: Whole  # different ones among the groups
    parameters: Whole  # tensors
    sparse: bool  # a gradient is sparse
    convolutions: ConvolutionWeights


class TableFacts(_Classed, CodePlace, total=False):
    """An Embedding or EmbeddingBag with dense gradients, and the call that made it.

    `elements`: of its optimizer's parameters that have gradients. `settings`: those set in the table or its optimizer that sparse gradients
    change or do not allow. `looks`: number of observations, 0 on a GPU, where no row is read.
    """

    through: str  # a library's function between the user's line and the table
    name: str  # in the model, `embed.weight`
    rows: Whole
    width: Whole
    device: str
    optimizer: str
    module: str  # the module of the optimizer's class
    fused: bool
    elements: Whole
    settings: list[str]
    looks: Whole
    rows_seen: Whole
    rows_empty: Whole  # their gradient was zero


class UnusedGradients(CodePlace, total=False):
    """Parameters that get gradients in each step and are in no optimizer, among all that get gradients.

    The place: of the call, if they are all of a network's. `looks`: how many in succession found them so. `tensors` are those with two
    dimensions and more. `first`: all of them come before the first parameter that learns, in the order of the model's modules. `modules`:
    parts of the model that hold them, or the class of a network as a whole. The others are absent if no graph was read, and say of a step's
    backward passes what they do in `DiscardedGradients`.
    """

    looks: Whole
    tensors: Whole
    elements: Whole
    all_tensors: Whole
    all_elements: Whole
    first: bool
    modules: list[str]
    order: str
    products: list[Whole]
    points: list[Whole]


class FrozenNetwork(_Classed, CodePlace, total=False):
    """A network that does not learn, called in the training thread. The place: of the user's call.

    `forward`: file and qualified name of the function that computes it. `rows`: inputs of the latest of `calls` that were looked at;
    `seen`: those that an earlier call had as well, which is nearly all of them if it `repeats`. `different`: inputs that differ, so far.
    `alike`: share of the inputs whose own call had the same one twice.
    """

    forward: str
    calls: Whole
    rows: Whole
    seen: Whole
    different: Whole
    alike: Number
    repeats: bool


class DiscardedGradients(_Classed, CodePlace, total=False):
    """A line that calls `backward()`, whose gradients for some optimizers are thrown away before these step.

    `class`: of the largest of these optimizers, which was made at `made`. `callers`: the lines that called the function of this one,
    innermost first.
    `steps`: recorded steps; in these `passes` from here of which it is known what became of their gradients, those that `dropped` some, and
    those of which `whole` nothing was used. `ns`: time of the passes from here, `all_ns` of all passes. `elements`: of these optimizers'
    parameters, and `all_elements` of all. The others say what autograd's graph of such a pass showed. `order`: where these parameters lie:
    upstream, downstream, both, whole. `others`: tensors of no optimizer got gradients, too. `products`: multiplications in all, and
    those that only these gradients need; `points`: elements of other tensors.
    """

    callers: list[CodePlace]
    steps: Whole
    passes: Whole
    dropped: Whole
    whole: Whole
    ns: Whole
    all_ns: Whole
    made: CodePlace
    elements: Whole
    all_elements: Whole
    order: str
    others: bool
    products: list[Whole]
    points: list[Whole]


class RepeatedPassLine(CodePlace):
    """A line of backward passes of which the later ones go again through nodes that an earlier one has kept."""

    passes: Whole


class RepeatedPasses(TypedDict):
    """Backward passes of a few steps, and those that go through nodes of autograd's graph again, for the same gradients.

    `repeating`: steps with such passes; `again`: these passes, all but the first through the nodes. `products`: multiplications of all
    passes in later steps, and of nodes gone through again; `points`: elements of other tensors. Zero where they were not read.
    """

    steps: Whole
    repeating: Whole
    passes: Whole
    again: Whole
    lines: list[RepeatedPassLine]
    products: list[Whole]
    points: list[Whole]


class _OperationCount(TypedDict):
    steps: Whole
    nodes: Whole
    low_ns: Whole


class OperationCount(_OperationCount, total=False):
    """Steps whose CPU clocks were read, and the autograd nodes created in their forward and backward passes.

    `low_ns`: CPU time of these passes for one node, in the tenth of the steps where it is shortest. `by_step`: step and nodes of some
    of them, over the whole run.
    """

    by_step: list[list[Whole]]


class _NodeMedian(TypedDict, total=False):
    median_ns: Whole  # of a node


class BackwardNodeClass(_NodeMedian):
    """Nodes of autograd of one class in the timed backward passes. `written`, `needed`: elements, of nodes that take parts of tensors: of
    all gradients that they write, and of the tensors whose parts they take.
    """

    name: str
    count: Whole
    ns: Whole
    written: Whole
    needed: Whole


OrderKind = Literal["products", "pooled", "enlarged"]


class LinearOrder(TypedDict):
    """Linear operations in an expensive order. `kind`: `products` of three matrices, or a layer whose rows are `pooled` or that takes
    `enlarged` images; `layer`: the name of its weight in the model, or nothing; `ns`: what the other order would spare.
    """

    kind: OrderKind
    layer: str
    ns: int


class ConvolutionKernel(TypedDict):
    """Dimensions and numbers of a convolution's kernel. `single`: it takes each channel by itself, and along a sequence `layer` names its
    weight if the model does; others have kernels of one number. `ns`: spent in these convolutions.
    """

    dims: Whole
    size: Whole
    single: bool
    layer: str
    ns: Whole


class _BackwardUse(TypedDict, total=False):
    partly_ns: Whole
    unneeded_ns: Whole
    ignored_ns: Whole
    unselected_ns: Whole
    repeated_rows_ns: Whole
    orders: list[LinearOrder]
    kernels: list[ConvolutionKernel]
    transforms: list[tuple[Whole, Whole]]
    again_ns: Whole
    loss_rows: list[Whole]
    searched: Whole
    order: str
    names: list[str]


class BackwardNodeTimes(_BackwardUse):
    """Backward passes on a CPU that were timed node by node: their number, their time, and the classes with most of it.

    `again_ns`: of nodes that an earlier pass of the step had gone through.
    `unneeded_ns`: of nodes that lead to no parameter of an optimizer. `partly_ns`: of others that also have a weight which is in none.
    `loss_rows`: rows of cross entropies over classes, and those that they ignore; `ignored_ns`: computing these in the layers before.
    `unselected_ns`: computing, in layers that take each row by itself, rows that a later selection leaves out.
    `repeated_rows_ns`: linear layers on rows that are there several times, and joining these rows.
    `orders`: linear operations that would compute less in another order.
    `kernels`: of convolutions of single channels or pixels.
    `transforms`: lengths of Fourier transforms, and ns in these.
    `searched`: elements of gradients that anomaly detection searched for NaN.
    `order`: nodes of the largest pass as the forward pass made them, a letter for each of `names`, from A on.
    """

    passes: Whole
    ns: Whole
    classes: list[BackwardNodeClass]
