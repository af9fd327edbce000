"""Counts rows of embedding tables whose dense gradient is zero: a batch touches few rows of a large table.

The calls that make the tables are recorded, too, since a fix changes their arguments. Sparse gradients need no observation.
"""

from __future__ import annotations

import weakref
from random import Random
from typing import TYPE_CHECKING, Any

from ..signal_exceptions import reraise_signal_exception
from ..workers.sample_parts import own
from .occasional_observations import OccasionalObservations
from .process_facts import call_frames

if TYPE_CHECKING:
    from collections.abc import Callable

    from ...documents.model_documents import TableFacts
    from .process_facts import Facts

ELEMENTS_MIN = 200_000  # of a table; calling a sparse update takes as long as a dense one of 50,000
MADE_MAX = 256  # a job may keep making models
TABLES_MAX = 32  # the largest of one step's optimizers
TABLES_AT_ONCE = 8
ROWS_AT_ONCE = 512  # of all its tables together, in 0.1 to 0.4 ms
OBSERVATIONS_MAX = 5  # at each table
_MODULES_MAX = 5_000
_WRAPPERS = ("module.", "_orig_mod.")  # DistributedDataParallel, torch.compile
_OF_GROUP = ("weight_decay", "momentum", "amsgrad")
_OF_TABLE = ("max_norm", "scale_grad_by_freq")


class EmbeddingTables(OccasionalObservations):
    """The tables of one process. `trained`: returns the model that trains, or None."""

    NAME = "tables"

    def __init__(self, facts: Facts, trained: Callable[[], Any]) -> None:
        super().__init__(facts)
        self._trained = trained
        self._made: list[tuple[weakref.ref[Any], TableFacts]] = []
        self._random = Random(0)  # the job's own generators stay as they are

    def made(self, table: Any) -> None:
        """Called when an Embedding or EmbeddingBag was made."""
        weight = _weight_of(table)
        if own(table).get("sparse") or weight is None or weight.numel() < ELEMENTS_MIN or len(self._made) >= MADE_MAX:
            return
        frame, through = call_frames(2)
        found: TableFacts = {
            "class": next(kind.__name__ for kind in type(table).__mro__ if kind.__module__.startswith("torch.")),
            "file": frame.f_code.co_filename if frame else "",
            "line": frame.f_lineno if frame else 0,
        }
        if through is not None:
            found["through"] = through.f_code.co_name
        self._made.append((weakref.ref(table), found))

    def _goes_on(self) -> bool:
        return super()._goes_on() and not self._complete()

    def _complete(self) -> bool:
        known = self._facts.values.get("tables")
        return bool(known) and all(table.get("looks", 0) >= OBSERVATIONS_MAX for table in known or ())

    def _read(self, torch: Any, optimizer: Any, step: int) -> bool:
        values = self._facts.values
        values.setdefault("tables", [])  # looked for
        updated = self._updated_by(optimizer)
        chosen = sorted(updated, key=lambda each: each[1].get("looks", 0))[:TABLES_AT_ONCE]
        read = False
        for weight, found in chosen:
            count = max(1, ROWS_AT_ONCE // len(chosen))
            places = torch.tensor(self._random.choices(range(found["rows"]), k=count), dtype=torch.int64, device="cpu")
            empty = _empty_rows(torch, weight.grad, places)
            if empty is not None:
                read = True
                found["looks"] += 1
                found["rows_seen"] += count
                found["rows_empty"] += empty
        if read and self._complete():
            self._facts.write()
        return read

    def _updated_by(self, optimizer: Any) -> list[tuple[Any, TableFacts]]:
        """The weights of tables that this optimizer updates by dense gradients, largest first, with their facts."""
        groups = {id(p): group for group in optimizer.param_groups for p in group["params"]}
        found = []
        for made, facts in self._made:
            table = made()
            weight = None if table is None else _weight_of(table)
            if weight is None or id(weight) not in groups or weight.grad is None or weight.grad.is_sparse:
                continue
            if "looks" not in facts:
                self._describe(facts, table, weight, optimizer, groups[id(weight)])
            found.append((weight, facts))
        found.sort(key=lambda each: -each[1]["rows"] * each[1]["width"])
        known = self._facts.values["tables"]
        for _, facts in found:
            if len(known) < TABLES_MAX and not any(facts is each for each in known):
                known.append(facts)
        listed = [each for each in found if any(each[1] is one for one in known)]
        self._name(listed)
        return listed

    def _describe(self, facts: TableFacts, table: Any, weight: Any, optimizer: Any, group: Any) -> None:
        settings = [name for name in _OF_GROUP if group.get(name)] + [n for n in _OF_TABLE if own(table).get(n)]
        if own(table).get("mode") == "max":
            settings.append("mode")
        facts["rows"], facts["width"] = (int(n) for n in weight.shape)
        facts["device"] = weight.device.type
        facts["optimizer"], facts["module"] = type(optimizer).__qualname__, type(optimizer).__module__
        facts["fused"] = bool(group.get("fused"))
        facts["settings"] = settings
        facts["elements"] = sum(
            p.numel() for each in optimizer.param_groups for p in each["params"] if p.grad is not None
        )
        facts["looks"] = facts["rows_seen"] = facts["rows_empty"] = 0

    def _name(self, tables: list[tuple[Any, TableFacts]]) -> None:
        """Adds the names of these weights in the model, once it is known."""
        unnamed = {id(weight): facts for weight, facts in tables if "name" not in facts}
        model = self._trained() if unnamed else None
        todo, seen = [("", model)] if model is not None else [], 0
        while todo and seen < _MODULES_MAX:
            prefix, module = todo.pop()
            seen += 1
            parts = own(module)
            for name, parameter in (parts.get("_parameters") or {}).items():
                facts = unnamed.get(id(parameter))
                if facts is not None:
                    facts.setdefault("name", _without_wrappers(prefix + name))
            todo += [
                ("%s%s." % (prefix, name), part)
                for name, part in (parts.get("_modules") or {}).items()
                if part is not None
            ]


def _weight_of(table: Any) -> Any:
    """The table's weight; None for one that is computed, or that has another shape."""
    weight = (own(table).get("_parameters") or {}).get("weight")
    return weight if weight is not None and weight.dim() == 2 else None


def _empty_rows(torch: Any, gradient: Any, places: Any) -> int | None:
    """How many of the rows at these places are zero in a dense gradient on the CPU; None for any other gradient."""
    if type(gradient) is not torch.Tensor or gradient.device.type != "cpu" or gradient.layout is not torch.strided:
        return None
    try:
        filled = gradient.detach().index_select(0, places).ne(0).any(1)
        return len(places) - int(filled.sum())
    except RuntimeError:  # its memory was released, or a transform of functorch wraps it
        reraise_signal_exception()
        return None


def _without_wrappers(name: str) -> str:
    while name.startswith(_WRAPPERS):
        name = name.partition(".")[2]
    return name
