"""Times the nodes of a few backward passes on a CPU, by their class: a hook before each node reads the clock.

A node's time lasts until the next one begins: with what adds up its gradients, and with the leaves behind it, which get no hook, since a
hook would stay with a parameter. Saved tensors are never read. Of nodes that take a part of a tensor it is counted how much their passes
write: a gradient as large as the whole tensor for each part. Time is also summed by what it is for: parameters of optimizers, or none, and
by whether an earlier pass of the step went through the node; of linear layers, by how many of their rows are there several times; of linear
operations, by what another order would spare. Of layers before a loss that ignores some targets, or before a selection of rows, a part of
the gradients is read, which shows the rows computed for nothing. Under anomaly detection the elements of all gradients are counted: it
searches them for NaN. Of the largest pass the order is kept in which the forward pass made its nodes: loops show as blocks that repeat.
"""

from __future__ import annotations

import sys
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any, NamedTuple

from ..facts.precision_facts import is_observed
from ..signal_exceptions import reraise_signal_exception
from .backward_graph import (
    LEAF,
    before_selections,
    convolved_kernel,
    elements_made,
    on_repeated_rows,
    transformed_length,
)
from .linear_orders import Spared, in_expensive_orders

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.model_documents import BackwardNodeClass
    from ..facts.process_facts import Facts

STEPS = (6, 20, 60)  # in which passes are timed
NODES_MAX = 20_000  # in all of them: 5 us each
CLASSES_MAX = 24  # of those with most time
ORDERED_MAX = 8_000  # nodes of a pass whose order is kept, a letter each
TRANSFORMS_MAX = 8
IN_PLACE = "torch::autograd::CopySlices"
SEQUENCE_NUMBER = "_sequence_nr"  # of a node, as the forward pass made them
NEEDED, PARTLY, UNNEEDED = "needed", "partly", "unneeded"  # for the gradients of optimizers' parameters
_LOSS, _SOFTMAX = "NllLossBackward0", "LogSoftmaxBackward0"
_ONE_NUMBER = (1, 2)  # mean and sum: with a loss for each row the job may choose rows by its result
_BEFORE_LOSS_MAX = 24  # nodes: the layers that turn hidden states into classes
_COLUMNS = 64  # read of a gradient: it is not zero there by chance
_ALIKE = 0.02  # of the rows; labels are shifted by one position in a language model
_PARTS = ("SelectBackward", "SliceBackward", IN_PLACE)
ORDERS_MAX, KERNELS_MAX = 8, 16  # those with most time


Kernel = tuple[int, int, bool, str]  # see `convolved_kernel`; the name of its weight, along sequences alone
NO_KERNEL: Kernel = (0, 0, False, "")


class _Reason(NamedTuple):
    """What a node's time is for."""

    use: str = NEEDED
    again: bool = False  # an earlier pass of the step went through it
    repeated_rows: float = 0.0  # of its rows
    length: int = 0  # of a Fourier transform
    kernel: Kernel = NO_KERNEL  # of a convolution
    spared: float = 0.0  # by another order of linear operations
    order: tuple[str, str] = ("", "")  # kind of these, and the layer's name


class BackwardNodes:
    """The timed passes of one process. Keeps no object of the job.

    `updated`: ids of the parameters of optimizers. `again`: whether an earlier pass of the step went through a node of this one.
    `named`: names of the parameters of the models that the job calls, by id.
    """

    def __init__(
        self,
        facts: Facts,
        updated: Callable[[], set[int]],
        again: Callable[[Any], bool] = lambda _: False,
        named: Callable[[], dict[int, str]] = dict,
    ) -> None:
        self._facts, self._updated, self._again, self._named = facts, updated, again, named
        self._known_names: dict[int, str] | None = None  # of this pass, once it has asked for one
        self._steps = list(STEPS)
        self._nodes_left = NODES_MAX
        self._classes: dict[str, BackwardNodeClass] = {}
        self._each: dict[str, list[int]] = {}  # ns of the nodes of a class
        self._passes = self._ns = 0
        self._order, self._names = "", list[str]()
        self._use_ns = {NEEDED: 0, PARTLY: 0, UNNEEDED: 0}
        self._current: BackwardNodeClass | None = None
        self._reason = _Reason()  # of the current node
        self._again_ns = 0
        self._ignored = self._unselected = 0.0  # of its rows
        self._ignored_ns = self._unselected_ns = self._repeated_rows_ns = 0
        self._transforms: dict[int, int] = {}  # ns by the lengths of Fourier transforms
        self._kernels: dict[Kernel, int] = {}  # ns by the kernels of convolutions
        self._orders: dict[tuple[str, str], float] = {}  # ns that other orders of linear operations spare
        self._loss_rows = [0, 0]  # of all losses so far, and those without a gradient
        self._of_loss = 0.0  # share of them in the latest loss
        self._searched: int | None = 0  # elements, for NaN; None if they cannot be counted
        self._since = 0
        self._handles: list[Any] = []
        self.open = False  # in a step whose passes are timed

    def turn(self, step: int) -> bool:
        """Called at the start of each step that is not replayed. True if its marks must be seen one by one."""
        if self.open:
            self._release()  # of a pass that failed, whose graph may stay
            self._note()
        self.open = bool(self._steps) and step >= self._steps[0]
        if self.open:
            self._steps = [later for later in self._steps if later > step]
        return self.open

    def backward_begins(self, roots: Any) -> None:
        """Called before a backward pass of a step that is timed."""
        self._release()
        self._known_names = None
        try:
            torch = sys.modules["torch"]
            if not undisturbed(torch):
                return
            with torch._C.DisableTorchFunction():
                tensors = roots if isinstance(roots, (list, tuple)) else [roots]
                # elsewhere the host only launches what a node computes
                on_cpu = all(root.device.type == "cpu" for root in tensors)
                nodes = nodes_of(tensors, self._nodes_left) if on_cpu else None
                if nodes is None:
                    self._end()
                    return
                self._nodes_left -= len(nodes)
                if torch.is_anomaly_enabled() and torch.is_anomaly_check_nan_enabled():
                    elements = _gradient_elements(nodes)
                    self._searched = None if elements is None or self._searched is None else self._searched + elements
                whole: set[tuple[Any, int]] = set()
                uses, before_loss = _uses(nodes, self._updated()), _before_loss(nodes)
                selected, repeated = before_selections(nodes), on_repeated_rows(nodes)
                orders = in_expensive_orders(nodes)
                for node in nodes:
                    rows = before_loss.get(node, ""), selected.get(node, 0.0)
                    sizes, order = (transformed_length(node), self._kernel_of(node)), self._order_of(orders.get(node))
                    use, again = uses.get(node, NEEDED), self._again(node)
                    reason = _Reason(use, again, repeated.get(node, 0.0), *sizes, *order)
                    mark = self._mark(self._counted(node, whole), reason, rows)
                    self._handles.append(node.register_prehook(mark))
            self._keep_order(nodes)
            self._current, self._since = None, perf_counter_ns()
        except Exception as error:
            self._failed(error)

    def _kernel_of(self, node: Any) -> Kernel:
        dims, size, single, weight = convolved_kernel(node)
        # a net on images may have a hundred such layers, of one or two sizes
        return dims, size, single, self._name_of(weight) if dims == 1 else ""

    def _order_of(self, spared: Spared | None) -> tuple[float, tuple[str, str]]:
        if spared is None:
            return 0.0, ("", "")
        return spared.share, (spared.kind, self._name_of(spared.weight))

    def _name_of(self, parameter: Any) -> str:
        if parameter is None:
            return ""
        if self._known_names is None:
            self._known_names = self._named()
        return self._known_names.get(id(parameter), "")

    def _keep_order(self, nodes: list[Any]) -> None:
        # custom functions of an older torch may have no number
        if len(self._order) < len(nodes) <= ORDERED_MAX and all(hasattr(node, SEQUENCE_NUMBER) for node in nodes):
            names = [node.name() for node in sorted(nodes, key=lambda node: getattr(node, SEQUENCE_NUMBER)())]
            self._names = list(dict.fromkeys(names))
            letters = {name: chr(ord("A") + n) for n, name in enumerate(self._names)}
            self._order = "".join(letters[name] for name in names)

    def backward_ends(self) -> None:
        if self._handles:
            self._begins(None, _Reason())
            self._current = None
            self._passes += 1
            self._release()

    def _mark(self, found: BackwardNodeClass, reason: _Reason, rows: tuple[str, float]) -> Callable[[Any], None]:
        if not any(rows):
            return lambda gradients: self._begins(found, reason)

        def begins(gradients: Any) -> None:
            self._begins(found, reason)
            try:
                self._read_rows(gradients[0], *rows)
            except Exception as error:
                self._failed(error)
            self._since = perf_counter_ns()

        return begins

    def _read_rows(self, gradient: Any, before_loss: str, unselected: float) -> None:
        """Reads for how many rows this node computes nothing, if it computes the rows of a loss, or of a later selection."""
        torch = sys.modules["torch"]
        if gradient is None or gradient.dim() < 2 or gradient.layout is not torch.strided:
            return
        with torch._C.DisableTorchFunction(), torch.no_grad():
            # the gradient of a loss has a number at each row's target alone
            each = 1 if before_loss == _SOFTMAX else -(-gradient.shape[-1] // _COLUMNS)
            # two numbers a row: logits may be the largest tensor of the job, of which another one must not be made
            low, high = gradient.detach()[..., ::each].aminmax(dim=-1)
            rows, zeros = low.numel(), int(((low == 0) & (high == 0)).sum())
        share = zeros / max(1, rows)
        if before_loss == _SOFTMAX:
            self._of_loss = share
            self._loss_rows = [self._loss_rows[0] + rows, self._loss_rows[1] + zeros]
        if before_loss and abs(share - self._of_loss) <= _ALIKE:  # else these are not the rows of the loss
            self._ignored = share
        else:
            self._unselected = min(share, unselected)  # more than these depends on what the rows are

    def _begins(self, following: BackwardNodeClass | None, reason: _Reason) -> None:
        spent, current = perf_counter_ns() - self._since, self._reason
        self._ns += spent
        if self._current is not None:
            self._current["ns"] += spent
            self._each.setdefault(self._current["name"], []).append(spent)
            self._use_ns[current.use] += spent
            self._ignored_ns += round(self._ignored * spent)
            self._unselected_ns += round(self._unselected * spent)
            self._repeated_rows_ns += round(current.repeated_rows * spent)
            self._again_ns += spent * current.again
            if current.length:
                self._transforms[current.length] = self._transforms.get(current.length, 0) + spent
            if current.kernel[0]:
                self._kernels[current.kernel] = self._kernels.get(current.kernel, 0) + spent
            if current.spared:
                self._orders[current.order] = self._orders.get(current.order, 0.0) + current.spared * spent
        self._ignored = self._unselected = 0.0
        self._current, self._reason, self._since = following, reason, perf_counter_ns()

    def _counted(self, node: Any, whole: set[tuple[Any, int]]) -> BackwardNodeClass:
        """The class of a node. `whole`: the tensors of which parts were taken before."""
        name = node.name()
        found = self._classes.get(name)
        if found is None:
            found = self._classes[name] = {"name": name, "count": 0, "ns": 0, "written": 0, "needed": 0}
        found["count"] += 1
        if name.startswith(_PARTS):
            before, place = node.next_functions[0]
            elements = elements_made(node, 0) if name == IN_PLACE else elements_made(before, place)
            found["written"] += elements
            # a chain of writes into one tensor counts once, at its first
            first = before is None or before.name() != IN_PLACE if name == IN_PLACE else (before, place) not in whole
            found["needed"] += elements if first else 0
            whole.add((before, place))
        return found

    def _note(self) -> None:
        if self._passes:
            often = sorted(self._classes.values(), key=lambda found: -found["ns"])[:CLASSES_MAX]
            for found in often:
                found["median_ns"] = _median(self._each.get(found["name"], []))
            # written with the other facts
            self._facts.values["backward_nodes"] = {
                "passes": self._passes,
                "ns": self._ns,
                "partly_ns": self._use_ns[PARTLY],
                "unneeded_ns": self._use_ns[UNNEEDED],
                "ignored_ns": self._ignored_ns,
                "unselected_ns": self._unselected_ns,
                "repeated_rows_ns": self._repeated_rows_ns,
                "again_ns": self._again_ns,
                "kernels": [
                    {"dims": dims, "size": size, "single": single, "layer": layer, "ns": ns}
                    for (dims, size, single, layer), ns in _longest(self._kernels, KERNELS_MAX)
                ],
                "transforms": _longest(self._transforms, TRANSFORMS_MAX),
                "orders": [
                    {"kind": kind, "layer": layer, "ns": round(ns)}
                    for (kind, layer), ns in _longest(self._orders, ORDERS_MAX)
                ],
                "loss_rows": self._loss_rows.copy(),
                "classes": [found.copy() for found in often],
                "order": self._order,
                "names": self._names,
            }
            if self._searched is not None:
                self._facts.values["backward_nodes"]["searched"] = self._searched
        if not self._steps:
            self._each.clear()

    def _release(self) -> None:
        handles, self._handles = self._handles, []
        for handle in handles:
            handle.remove()

    def _end(self) -> None:
        self._steps, self.open = [], False

    def _failed(self, error: Exception) -> None:
        reraise_signal_exception()
        self._end()
        self._release()
        self._facts.miss("nodes of backward passes: %s" % type(error).__name__)


def _longest(spent: dict[Any, Any], most: int) -> list[tuple[Any, Any]]:
    return sorted(spent.items(), key=lambda each: -each[1])[:most]


def _median(numbers: list[int]) -> int:
    return sorted(numbers)[len(numbers) // 2] if numbers else 0


def undisturbed(torch: Any) -> bool:
    """False where somebody would see the hooks: a profiler, a dispatch mode, a compiler of backward passes."""
    compiler = sys.modules.get("torch._dynamo.compiled_autograd")
    compiles = getattr(compiler, "compiled_autograd_enabled", False) or getattr(
        compiler, "in_compiled_autograd_region", False
    )
    return not (is_observed(torch) or compiles)


def nodes_of(roots: list[Any] | tuple[Any, ...], most: int) -> list[Any] | None:
    """All nodes of the graph of these tensors but its leaves; None if it has more than `most`."""
    found = [root.grad_fn for root in roots if getattr(root, "grad_fn", None) is not None]
    seen = set(found)
    for node in found:  # grows
        for following, _ in node.next_functions:
            if following is not None and following not in seen and following.name() != LEAF:
                seen.add(following)
                found.append(following)
        if len(found) > most:
            return None
    return found


def _uses(nodes: list[Any], updated: set[int]) -> dict[Any, str]:
    """Which nodes do work that no optimizer needs: all of it, or that for one of their inputs. Empty if no optimizer gets anything here.

    A leaf that is no parameter may have its gradient read by the job.
    """
    parameter = sys.modules["torch"].nn.Parameter
    before: dict[Any, list[Any]] = {}
    todo: list[Any] = []
    unused: set[Any] = set()  # leaves at first
    for node in nodes:
        for following, _ in node.next_functions:
            if following is None:
                continue
            if following.name() != LEAF:
                before.setdefault(following, []).append(node)
            elif id(following.variable) in updated or not isinstance(following.variable, parameter):
                todo.append(node)
            else:
                unused.add(following)
    if not todo:
        return {}
    needed = set(todo)
    for node in todo:  # grows
        found = [each for each in before.get(node, ()) if each not in needed]
        needed.update(found)
        todo += found
    unused.update(node for node in nodes if node not in needed)
    partly = (node for node in needed if any(following in unused for following, _ in node.next_functions))
    return {**dict.fromkeys(unused, UNNEEDED), **dict.fromkeys(partly, PARTLY)}


def _before_loss(nodes: list[Any]) -> dict[Any, str]:
    """The nodes of the layers before a loss over rows of classes, by name. Only of a loss that is one number."""
    found: dict[Any, str] = {}
    for loss in nodes:
        if loss.name() != _LOSS or loss._saved_reduction not in _ONE_NUMBER:
            continue
        layers = [node for node, _ in loss.next_functions if node is not None and node.name() == _SOFTMAX]
        for node in layers:  # grows
            found[node] = node.name()
            after = [each for each, _ in node.next_functions if each is not None and each.name() != LEAF]
            layers += [each for each in after if each not in found and len(layers) < _BEFORE_LOSS_MAX]
    return found


def _gradient_elements(nodes: list[Any]) -> int | None:
    """Elements of all gradients that these nodes compute; None where torch does not say, as an older one of the job's own functions."""
    edges = [edge for node in nodes for edge in node.next_functions if edge[0] is not None]
    if not all(node.name() == LEAF or hasattr(node, "_input_metadata") for node, _ in edges):
        return None
    return sum(elements_made(node, place) for node, place in edges)
