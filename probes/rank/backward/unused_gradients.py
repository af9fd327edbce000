"""Finds parameters that get gradients although no optimizer updates them: computing these is work for nothing.

They may belong to the trained model, or to a network beside it, such as a teacher: then autograd's graph of a backward pass shows them.
What looks like one may be updated by hand, or keep a gradient of long ago. So a few numbers of the largest must stay the same from
one observation to the next, while those of their gradients change. On a GPU the version counters of the tensors must say so.
"""

from __future__ import annotations

import sys
import weakref
from typing import TYPE_CHECKING, Any, NamedTuple

from ..facts.layer_facts import inner_model
from ..facts.occasional_observations import OccasionalObservations
from ..signal_exceptions import reraise_signal_exception
from ..workers.sample_parts import own
from .backward_graph import OTHERS, read_graph

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from ...documents.model_documents import UnusedGradients
    from ..facts.precision_facts import CalledModel
    from ..facts.process_facts import Facts
    from .backward_graph import BackwardGraph

GRAPH_STEPS = (8, 40)  # in which the graphs of backward passes are read
PASSES_MAX = 4  # read in a step
WATCHED = 8  # of each network, the largest of its parameters without an optimizer
_NUMBERS = 64  # read of each, and of its gradient: of kernels on small pictures only the centre has one
_SPREAD = 2_654_435_761  # multiples of it, modulo the size, lie all over a tensor
_ELEMENTS_MIN = 1_000  # fewer cost nothing
UPDATED_MAX = 20_000  # parameters of optimizers; a job may make new models without end
_NAMES_MAX = 4
_CLEAR_MAX = 20  # observations in succession without such a parameter, after which none follows
_USED, _UNUSED = OTHERS << 1, OTHERS << 2  # bits of leaves


class _Network(NamedTuple):
    """`called`: None for parameters of which only the graph is known. `parameters`: those that get gradients, with their names."""

    called: CalledModel | None
    parameters: list[tuple[str, Any]]


class UnusedGradientWatch(OccasionalObservations):
    """The observations of one process. `called`: the models that it calls. `optimizers`: those that it has made.

    An observation lists the parameters with gradients that are in no optimizer seen so far. The next one settles it, when all of the step's
    optimizers are known.
    """

    NAME = "unused gradients"

    def __init__(
        self, facts: Facts, called: Callable[[], list[CalledModel]], optimizers: Callable[[], Iterable[Any]]
    ) -> None:
        super().__init__(facts)
        self._called, self._optimizers = called, optimizers
        self._updated: set[int] = set()  # ids of the parameters of all optimizers
        # a network -> id of a watched parameter -> its state and its gradient's at the last observation
        self._seen: dict[int, dict[int, Any]] = {}
        self._found: UnusedGradients | None = None
        self._clear = 0  # observations since the last one with a parameter that may be unused
        self._graph_steps = list(GRAPH_STEPS)
        self._passes_left = 0
        self._graphs: list[BackwardGraph] = []  # of the last step whose passes were read
        self._leaves: dict[int, weakref.ref[Any]] = {}  # parameters behind these passes, by id
        self._unused_behind: set[int] = set()  # of these, those that were in no optimizer
        self.open = False  # in a step whose passes are read

    def _goes_on(self) -> bool:
        return super()._goes_on() and self._clear < _CLEAR_MAX

    def _read(self, torch: Any, optimizer: Any, step: int) -> bool:
        self._updates(optimizer)
        if len(self._updated) > UPDATED_MAX:
            self._seen, self._clear = {}, _CLEAR_MAX
            self._note([], [])
            return False
        networks = self._networks()
        if not networks or step == self._step:  # the first optimizer of a step has read them
            return bool(networks)
        learning = [each for network in networks for each in network.parameters]
        unused = [self._unused(network) for network in networks]
        elements = sum(p.numel() for each in unused for _, p in each)
        # with none of its own parameters in an optimizer, copies of them are: sharded or kept in another precision
        some = 0 < sum(map(len, unused)) < len(learning) and elements >= _ELEMENTS_MIN
        before, self._seen = self._seen, {}
        settled = []
        for number, network in enumerate(networks):
            watched = sorted((p for _, p in unused[number]), key=lambda p: -p.numel())[:WATCHED] if some else []
            states = {id(p): (state_of(torch, p), state_of(torch, p.grad)) for p in watched}
            self._seen[number] = states
            if states and _stays(before.get(number, {}), states):
                settled.append((network, unused[number]))
        self._clear = 0 if any(self._seen.values()) else self._clear + 1
        self._note(learning, settled)
        return True

    def turn(self, step: int) -> bool:
        """Called at the start of each step that is not replayed. True if its marks must be seen one by one."""
        if self.open and not any(graph.reaches & _UNUSED for graph in self._graphs):
            self._graphs, self._leaves = [], {}
        self.open = bool(self._graph_steps) and step >= self._graph_steps[0]
        if self.open:
            self._graph_steps = [later for later in self._graph_steps if later > step]
            self._graphs, self._leaves, self._unused_behind, self._passes_left = [], {}, set(), PASSES_MAX
        return self.open

    def backward_begins(self, roots: Any) -> None:
        """Called before a backward pass of a step whose passes are read."""
        if not self._passes_left:
            return
        self._passes_left -= 1
        try:
            torch = sys.modules["torch"]
            self.updated()
            with torch._C.DisableTorchFunction():
                graph = read_graph(roots, lambda leaf: self._bit(torch, leaf))
            if graph is None or len(self._leaves) > UPDATED_MAX:
                self._passes_left, self._graphs, self._leaves = 0, [], {}
            else:
                self._graphs.append(graph)
        except Exception as error:
            reraise_signal_exception()
            self._graph_steps, self._passes_left, self._graphs = [], 0, []
            self._facts.miss("%s: %s" % (self.NAME, type(error).__name__))

    def updated(self) -> set[int]:
        """Ids of the parameters that optimizers update, as far as they are known."""
        for optimizer in self._optimizers():
            self._updates(optimizer)
        return self._updated

    def names(self) -> dict[int, str]:
        """Names of the parameters of the models that the job calls, by id."""
        models = [model for each in self._called() if (model := each.of()) is not None]
        return {id(parameter): name for model in reversed(models) for name, parameter in _named(model)}

    def _updates(self, optimizer: Any) -> None:
        self._updated.update(id(p) for group in optimizer.param_groups for p in group["params"])

    def _bit(self, torch: Any, leaf: Any) -> int:
        """A leaf that is no parameter may have its gradient read: an input that an attack changes, say."""
        if not isinstance(leaf, torch.nn.Parameter):
            return 0
        self._leaves[id(leaf)] = weakref.ref(leaf)
        if id(leaf) in self._updated:
            return _USED
        self._unused_behind.add(id(leaf))
        return _UNUSED

    def _networks(self) -> list[_Network]:
        """Those with parameters that get gradients. A parameter counts once."""
        known: set[int] = set()
        found = []
        for each in self._called():
            model = each.of()
            if model is not None:
                parts = [(name, p) for name, p in _named(model) if id(p) not in known and _learns(p)]
                known.update(id(p) for _, p in parts)
                found.append(_Network(each, parts))
        rest = [leaf for key, of in self._leaves.items() if key not in known and (leaf := of()) is not None]
        found.append(_Network(None, [("", leaf) for leaf in rest if _learns(leaf)]))
        return [network for network in found if network.parameters]

    def _unused(self, network: _Network) -> list[tuple[str, Any]]:
        return [(name, p) for name, p in network.parameters if id(p) not in self._updated]

    def _learns_last(self, network: _Network) -> bool:
        # a bias or a scale says little about it
        order = [id(p) in self._updated for _, p in network.parameters if p.dim() > 1]
        return all(order[order.index(True) :]) if any(order) else False

    def _note(self, learning: list[tuple[str, Any]], settled: list[tuple[_Network, list[tuple[str, Any]]]]) -> None:
        if not settled:
            if self._found is not None:
                self._found["looks"] = 0  # they are used now, or were frozen
            return
        largest, parts = max(settled, key=lambda each: sum(p.numel() for _, p in each[1]))
        unused = [p for _, each in settled for _, p in each]
        found: UnusedGradients = {
            "looks": 1 + (self._found["looks"] if self._found is not None else 0),
            "tensors": sum(p.dim() > 1 for p in unused),
            "elements": sum(p.numel() for p in unused),
            "all_tensors": sum(p.dim() > 1 for _, p in learning),
            "all_elements": sum(p.numel() for _, p in learning),
            "first": all(self._learns_last(network) for network, _ in settled),
            "modules": list(dict.fromkeys(name for each in settled for name in _names(*each)))[:_NAMES_MAX],
        }
        if largest.called is not None and largest.called.place and _whole(largest, parts):
            found["file"], found["line"] = largest.called.place["file"], largest.called.place["line"]
        if self._graphs and self._unused_behind <= set(map(id, unused)):
            orders = {graph.order(_UNUSED) for graph in self._graphs} - {""}
            found["order"] = orders.pop() if len(orders) == 1 else "both"
            work = [(graph.work(), graph.work(_UNUSED)) for graph in self._graphs]
            found["products"] = [
                sum(each.products for each, _ in work),
                sum(each.products - left.products for each, left in work),
            ]
            found["points"] = [
                sum(each.points for each, _ in work),
                sum(each.points - left.points for each, left in work),
            ]
        self._found = self._facts.values["unused_gradients"] = found  # written with the other facts


def _learns(parameter: Any) -> bool:
    return parameter.requires_grad and parameter.grad is not None


def _stays(before: dict[int, Any], now: dict[int, Any]) -> bool:
    """True if the watched parameters are as they were, and most of their gradients are not."""
    if now.keys() != before.keys():
        return False
    renewed = sum(now[key][1] != before[key][1] for key in now)
    return all(now[key][0] == before[key][0] for key in now) and 2 * renewed > len(now)


def _whole(network: _Network, unused: list[tuple[str, Any]]) -> bool:
    return len(unused) == len(network.parameters)


def _names(network: _Network, unused: list[tuple[str, Any]]) -> list[str]:
    """What the job would freeze: parts of the network, or its class if it is unused as a whole."""
    model = network.called.of() if network.called is not None else None
    if model is None:
        largest = max((p for _, p in unused), key=lambda p: p.numel())
        return ["the network with a weight of %s" % " x ".join(map(str, largest.shape))]
    if _whole(network, unused):
        return [type(inner_model(model)).__name__]
    return [name.partition(".")[0] for name, _ in unused]


def _named(model: Any) -> list[tuple[str, Any]]:
    """Names and parameters in the order of their modules, each once. Calls nothing that the job may have overridden."""
    found: list[tuple[str, Any]] = []
    todo, known = [("", inner_model(model))], set()
    while todo:
        prefix, module = todo.pop()
        known.add(id(module))
        parts = own(module)
        for name, parameter in (parts.get("_parameters") or {}).items():
            if parameter is not None and id(parameter) not in known:
                known.add(id(parameter))
                found.append((prefix + name, parameter))
        inside = [(f"{prefix}{name}.", part) for name, part in (parts.get("_modules") or {}).items()]
        todo += [each for each in reversed(inside) if each[1] is not None and id(each[1]) not in known]
    return found


def state_of(torch: Any, tensor: Any) -> Any:
    """What changes when the tensor is written: some of its numbers; on a GPU, or where it is not dense, its version and address."""
    if tensor.device.type == "cpu" and tensor.layout is torch.strided:
        dense = tensor.detach()
        if dense.dim() == 4 and not dense.is_contiguous():
            dense = dense.permute(0, 2, 3, 1)  # channels-last
        if dense.is_contiguous():
            size = dense.numel()
            places = [_SPREAD * n % size for n in range(min(_NUMBERS, size))]
            return dense.view(-1).index_select(0, torch.tensor(places, dtype=torch.int64, device="cpu")).tolist()
    return tensor._version, tensor.data_ptr() if tensor.layout is torch.strided else 0
