"""Properties of a DataLoader at its creation: arguments, classes, names, and the line that makes it.

Runs no property, `__getattr__` or `__repr__` of the user's, and keeps only plain values.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

from ..workers.sample_parts import TRANSFORM, described
from .dataset_facts import describe_dataset, name_of, own
from .process_facts import call_frames

if TYPE_CHECKING:
    from types import FrameType

    from ...documents.loader_documents import DescribedLoader, Setting

_DEPTH = 4  # nested wrappers around a dataset
_CHARACTERS = 200
# These functions recreate the loader passed to them for a rank's share of its samples.
_REMAKERS = ("accelerate.data_loader.", "lightning.fabric.utilities.data._re", "lightning_fabric.utilities.data._re")


def describe_loader(loader: Any) -> DescribedLoader:
    """The arguments of a DataLoader, the line that created it, and the library function in between."""
    frame, through = call_frames(2)
    facts: DescribedLoader = {
        "file": frame.f_code.co_filename if frame else "",
        "line": frame.f_lineno if frame else 0,
        "class": type(loader).__qualname__,
    }
    if through is not None:
        facts["through"] = _function(through)
    facts["batch_size"] = _setting(loader, "batch_size")
    facts["num_workers"] = _number(loader, "num_workers")
    facts["pin_memory"] = _setting(loader, "pin_memory")
    facts["prefetch_factor"] = _number(loader, "prefetch_factor")
    facts["persistent_workers"] = _setting(loader, "persistent_workers")
    facts["drop_last"] = _setting(loader, "drop_last")
    facts["timeout"] = _setting(loader, "timeout")
    facts["in_order"] = _setting(loader, "in_order")
    batches = getattr(loader, "batch_sampler", None)
    sampler = _drawing(loader, batches)
    size = own(batches, "batch_size") if facts["batch_size"] is None else None
    facts["sampler_batch_size"] = size if type(size) is int else None
    facts["sampler"] = type(sampler).__qualname__
    facts["shuffle"] = _shuffles(sampler)
    facts["batch_sampler"] = None if batches is None or _is_torchs(batches) else type(batches).__qualname__
    collate = getattr(loader, "collate_fn", None)
    facts["collate"] = name_of(collate)
    if collate is not None:
        _, file, line = described(collate, TRANSFORM)
        if file:
            facts["collate_file"], facts["collate_line"] = file, line
    facts["worker_init"] = name_of(getattr(loader, "worker_init_fn", None))
    facts["context"] = _context(loader)
    facts["generator"] = getattr(loader, "generator", None) is not None
    facts["dataset"] = describe_dataset(getattr(loader, "dataset", None))
    return facts


def _setting(loader: Any, name: str) -> Setting:
    value = getattr(loader, name, None)
    return value if isinstance(value, (int, float, bool, str, type(None))) else str(type(value).__qualname__)


def _number(loader: Any, name: str) -> int | None:
    value: Any = getattr(loader, name, None)
    if type(value).__module__ != "numpy":  # calling `__index__` of any other class could run the user's code
        return value if isinstance(value, int) else None
    try:
        return operator.index(value)
    except TypeError:
        return None


def is_remade(described: DescribedLoader) -> bool:
    """True if a library created this loader to replace one that was passed to it."""
    return described.get("through", "").startswith(_REMAKERS)


def _function(frame: FrameType) -> str:
    module = str(frame.f_globals.get("__name__", ""))
    return ("%s.%s" % (module, frame.f_code.co_name))[:_CHARACTERS]


def _is_torchs(batch_sampler: Any) -> bool:
    return type(batch_sampler).__module__.startswith("torch.utils.data")


def _drawing(loader: Any, batches: Any) -> Any:
    """The object that draws the indices.

    With the job's own batch sampler the loader's sampler is unused: then it is the batch sampler's inner sampler, or the batch sampler.
    """
    if batches is None or getattr(loader, "batch_size", None) is not None:
        return getattr(loader, "sampler", None)
    for _ in range(_DEPTH):
        inside = (own(batches, name) for name in ("batch_sampler", "sampler"))
        inner = next((found for found in inside if found is not None), None)
        if inner is None:
            break
        batches = inner
    return batches


def _shuffles(sampler: Any) -> bool | None:
    """True if the sampler shuffles; None if unknown."""
    known = {"RandomSampler": True, "SubsetRandomSampler": True, "WeightedRandomSampler": True}
    known["SequentialSampler"] = False
    if type(sampler).__qualname__ in known and type(sampler).__module__.startswith("torch."):
        return known[type(sampler).__qualname__]
    shuffle = own(sampler, "shuffle")
    return shuffle if isinstance(shuffle, bool) else None


def _context(loader: Any) -> str | None:
    """The loader's explicit start method for workers, or None. The default is not queried, since the query would fix it."""
    context = own(loader, "_DataLoader__multiprocessing_context")
    name = getattr(type(context), "_name", None)
    return str(name) if name else None
