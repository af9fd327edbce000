"""Wording of a job's DataLoaders, from the facts of its ranks: one row per loader, however many ranks made it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rn50_advisor.advisor.model.wording.quantities import bytes_, shorten

_LOADERS_SHOWN = 20
_NAMES_SHOWN = 4  # transforms in the short form
_DEPTH = 5
_WORDS = 300  # characters of any one value
# Facts that differ from rank to rank or are shown separately.
_OWN = ("id", "training", "batch_bytes", "batch_tensors", "made")

Facts = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class LoaderRow:
    """One loader in words. `short` is one line; `details` holds label and value of all known facts."""

    place: str
    role: str
    ranks: tuple[str, ...]
    short: str
    details: tuple[tuple[str, str], ...]


def loader_rows(facts: Mapping[str, Any]) -> list[LoaderRow]:
    """One row per loader from a report's facts. Entries of another shape are skipped."""
    found: dict[str, tuple[Facts, list[str]]] = {}
    for rank, own in facts.items():
        loaders = own.get("loaders") if isinstance(own, Mapping) else None
        for loader in loaders if isinstance(loaders, (list, tuple)) else ():
            if isinstance(loader, Mapping):
                key = repr([item for item in sorted(loader.items(), key=str) if item[0] not in _OWN])
                found.setdefault(key, (loader, []))[1].append(str(rank))
    rows = [_row(loader, tuple(ranks)) for loader, ranks in found.values()]
    order = {"trains": 0, "evaluates": 1}
    return sorted(rows, key=lambda row: (order.get(row.role, 2), row.place))[:_LOADERS_SHOWN]


def without_loaders(facts: Facts) -> dict[str, Any]:
    """The facts without loaders, which are described separately."""
    return {
        rank: {key: value for key, value in own.items() if key != "loaders"} if isinstance(own, Mapping) else own
        for rank, own in facts.items()
    }


def _row(loader: Facts, ranks: tuple[str, ...]) -> LoaderRow:
    training = loader.get("training")
    role = "trains" if training is True else "evaluates" if training is False else "not used yet"
    place = f"{loader.get('file')}:{loader.get('line')}" if loader.get("file") else "somewhere"
    return LoaderRow(_text(place), role, ranks, _short(loader), tuple(_details(loader, ranks)))


def _short(loader: Facts) -> str:
    workers, library = loader.get("num_workers"), loader.get("library")
    parts = [f"{workers} worker{'' if workers == 1 else 's'}" if workers else "loads in the training process"]
    if library:  # its workers are unknown
        parts = [f"batches of {library}"]
    if loader.get("batch_size") is not None:
        parts.append(f"batch {loader['batch_size']}")
    shuffled = loader.get("shuffle")
    sampler = str(loader.get("sampler") or "")
    parts.append("shuffled" if shuffled is True else "in order" if shuffled is False else sampler)
    if workers:
        parts.append(f"prefetch {loader.get('prefetch_factor')}")
    parts += [word for key, word in (("pin_memory", "pinned"), ("persistent_workers", "persistent")) if loader.get(key)]
    dataset = loader.get("dataset")
    if isinstance(dataset, Mapping):
        parts.append(_chain(dataset))
        names = _transforms(dataset)
        if names:
            more = f" and {len(names) - _NAMES_SHOWN} more" if len(names) > _NAMES_SHOWN else ""
            parts.append(", ".join(names[:_NAMES_SHOWN]) + more)
    return " · ".join(_text(part) for part in parts if part)


def _details(loader: Facts, ranks: tuple[str, ...]) -> Iterable[tuple[str, str]]:
    def plain(key: str, label: str | None = None) -> Iterable[tuple[str, str]]:
        value = loader.get(key)
        if value is not None and value != "":
            text = {True: "yes", False: "no"}[value] if isinstance(value, bool) else _text(value)
            yield label or key, text

    yield "ranks", ", ".join(ranks[:16]) + (", …" if len(ranks) > 16 else "")
    yield from plain("class")
    yield from plain("library")
    yield from plain("through", "made by")
    if isinstance(loader.get("made"), int) and loader["made"] > 1:
        yield "made", f"{loader['made']} times"
    for key in ("num_workers", "batch_size", "prefetch_factor", "persistent_workers", "pin_memory", "drop_last"):
        yield from plain(key)
    yield from plain("shuffle")
    yield from plain("sampler")
    yield from plain("batch_sampler")
    yield from plain("collate", "collate_fn")
    yield from plain("worker_init", "worker_init_fn")
    yield from plain("context", "multiprocessing_context")
    yield from plain("dispatches", "loaded by rank 0 for all ranks")
    yield from plain("split_batches")
    yield from plain("in_order")
    yield from plain("timeout")
    yield from plain("generator")
    if isinstance(loader.get("batch_bytes"), int) and loader["batch_bytes"]:
        yield "batch size in memory", bytes_(loader["batch_bytes"])
    dataset = loader.get("dataset")
    if isinstance(dataset, Mapping):
        yield "data set", _chain(dataset)
        if dataset.get("root"):
            yield "data set folder", _text(dataset["root"])
        yield from _inside(dataset)


def _inside(dataset: Facts) -> Iterable[tuple[str, str]]:
    for layer in _layers(dataset):
        if layer.get("tensors"):
            yield "tensors", ", ".join(_text(t) for t in layer["tensors"])
        names, settings = layer.get("transforms"), layer.get("transform_settings")
        if isinstance(names, (list, tuple)) and names:
            shown = settings if isinstance(settings, (list, tuple)) and len(settings) == len(names) else names
            yield "transforms", " → ".join(_text(said or name) for said, name in zip(shown, names, strict=True))


def _chain(dataset: Facts) -> str:
    """For example `Subset, 500 samples, of ImageFolder, 1,281,167 samples`."""
    levels = []
    for layer in _layers(dataset):
        name = str(layer.get("name") or layer.get("class") or "?").rpartition(".")[2]
        length = layer.get("length")
        levels.append(f"{name}, {length:,} samples" if isinstance(length, int) else name)
        if isinstance(layer.get("parts_count"), int):
            levels[-1] += f" in {layer['parts_count']} parts"
    return _text(", of ".join(levels))


def _layers(dataset: Facts) -> list[Facts]:
    """A data set and the data sets inside it, outermost first; of a concatenation only the first part."""
    found: list[Facts] = []
    layer: Any = dataset
    while isinstance(layer, Mapping) and layer and len(found) < _DEPTH:
        found.append(layer)
        parts = layer.get("parts")
        first = parts[0] if isinstance(parts, (list, tuple)) and parts else None
        layer = layer.get("inner") or first
    return found


def _transforms(dataset: Facts) -> list[str]:
    for layer in _layers(dataset):
        names = layer.get("transforms")
        if isinstance(names, (list, tuple)) and names:
            return [_text(name) for name in names]
    return []


def _text(value: Any) -> str:
    return shorten(str(value), _WORDS)
