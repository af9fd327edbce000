"""Finds parameters of the trained model that get gradients although no optimizer updates them: computing these is work for nothing.

What looks like one may be updated by hand, or keep a gradient of long ago. So a few numbers of the largest must stay the same from
look to look, while those of their gradients change. On a GPU the version counters of the tensors must say so.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..workers.sample_parts import own
from .layer_facts import inner_model
from .occasional_looks import OccasionalLooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.rank_documents import UnusedGradients
    from .process_facts import Facts

WATCHED = 8  # the largest of the parameters without an optimizer
_NUMBERS = 64  # read of each, and of its gradient: of kernels on small pictures only the centre has one
_SPREAD = 2_654_435_761  # multiples of it, modulo the size, lie all over a tensor
_ELEMENTS_MIN = 1_000  # fewer cost nothing
UPDATED_MAX = 20_000  # parameters of optimizers; a job may make new models without end
_NAMES_MAX = 4
_CLEAR_MAX = 20  # looks in succession without such a parameter, after which none follows


class UnusedGradientLooks(OccasionalLooks):
    """The looks of one process. `trained`: returns the model that trains, or None.

    A look lists the parameters with gradients that are in no optimizer seen so far. The next one settles it, when all of the step's
    optimizers are known.
    """

    NAME = "unused gradients"

    def __init__(self, facts: Facts, trained: Callable[[], Any]) -> None:
        super().__init__(facts)
        self._trained = trained
        self._updated: set[int] = set()  # ids of the parameters of all optimizers
        self._seen: dict[int, Any] = {}  # id of a watched parameter -> its state and its gradient's at the last look
        self._found: UnusedGradients | None = None
        self._clear = 0  # looks since the last one with a parameter that may be unused

    def _goes_on(self) -> bool:
        return super()._goes_on() and self._clear < _CLEAR_MAX

    def _read(self, torch: Any, optimizer: Any, step: int) -> bool:
        self._updated.update(id(p) for group in optimizer.param_groups for p in group["params"])
        if len(self._updated) > UPDATED_MAX:
            self._seen, self._clear = {}, _CLEAR_MAX
            self._note([], [], settled=False)
            return False
        model = self._trained()
        if model is None or step == self._step:  # the first optimizer of a step has read the model
            return model is not None
        learning = [(name, p) for name, p in _named(model) if p.requires_grad and p.grad is not None]
        unused = [(name, p) for name, p in learning if id(p) not in self._updated]
        # with none of its own parameters in an optimizer, copies of them are: sharded or kept in another precision
        settled = 0 < len(unused) < len(learning) and sum(p.numel() for _, p in unused) >= _ELEMENTS_MIN
        watched = sorted((p for _, p in unused), key=lambda p: -p.numel())[:WATCHED] if settled else []
        states = {id(p): (state_of(torch, p), state_of(torch, p.grad)) for p in watched}
        before, self._seen = self._seen, states
        self._clear = 0 if states else self._clear + 1
        if states.keys() == before.keys():
            same = all(states[key][0] == before[key][0] for key in states)
            renewed = sum(states[key][1] != before[key][1] for key in states)
            settled = same and 2 * renewed > len(states)
        else:
            settled = False
        self._note(learning, unused, settled=settled)
        return True

    def _note(self, learning: list[tuple[str, Any]], unused: list[tuple[str, Any]], *, settled: bool) -> None:
        if not settled:
            if self._found is not None:
                self._found["looks"] = 0  # they are used now, or were frozen
            return
        order = [id(p) in self._updated for _, p in learning if p.dim() > 1]  # a bias or a scale says little about it
        names = list(dict.fromkeys(name.partition(".")[0] for name, _ in unused))
        found: UnusedGradients = {
            "looks": 1 + (self._found["looks"] if self._found is not None else 0),
            "tensors": sum(p.dim() > 1 for _, p in unused),
            "elements": sum(p.numel() for _, p in unused),
            "all_tensors": sum(p.dim() > 1 for _, p in learning),
            "all_elements": sum(p.numel() for _, p in learning),
            "first": all(order[order.index(True) :]) if any(order) else False,
            "modules": names[:_NAMES_MAX],
        }
        self._found = self._facts.values["unused_gradients"] = found  # written with the other facts


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
