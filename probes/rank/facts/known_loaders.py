"""The job's DataLoaders, each by a number: what describes it, how often it was made, what its first batch held."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from ..step_account import TRAINING
from .loader_facts import batch_bytes, describe_loader, is_remade

if TYPE_CHECKING:
    from ..step_account import Account


# Numbers by which objects of the job are known for as long as they live.
class Numbers:
    """By identity: an object of the job may compare as it likes, and need have no hash. Nothing is kept alive."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}

    def get(self, item: Any) -> int:
        """-1 of an object that has none."""
        known = self._known.get(id(item))
        return known[1] if known is not None and known[0]() is item else -1

    def put(self, item: Any, number: int) -> None:
        key, known = id(item), self._known
        try:
            # in C: what a signal's handler raises in a callback of a reference is lost
            known[key] = weakref.ref(item, partial(known.pop, key)), number
        except TypeError:
            pass  # a list, say: nobody would tell when it is gone


LOADERS_MAX = 100  # a job that makes ever new ones is not followed into each


class KnownLoaders:
    """`described` also holds what a library's iterators enrol."""

    def __init__(self) -> None:
        self.described: dict[int, dict[str, Any]] = {}
        self.numbers = Numbers()
        self._fed_by = Numbers()  # of data sets: the loader made last for them
        self._batch_bytes: dict[int, int] = {}  # of each loader's first batch
        self._made: dict[int, int] = {}  # how often each was made

    def add(self, loader: Any) -> None:
        """A loader made anew at the same line for the same data (for each evaluation, say) is the one known already."""
        described = describe_loader(loader)
        if is_remade(described):  # the line to change is where the job, or its trainer, made the one before it
            given = self.described.get(self._fed_by.get(loader.dataset), {})
            described.update({name: given[name] for name in ("file", "line", "through") if name in given})
            if given and "through" not in given:
                del described["through"]
        number = next((n for n, known in self.described.items() if known == described), len(self.described))
        self.numbers.put(loader, number)
        self._made[number] = self._made.get(number, 0) + 1
        if len(self.described) < LOADERS_MAX:
            self.described.setdefault(number, described)
        self._fed_by.put(loader.dataset, number)

    def batch_size(self, number: int) -> int | None:
        """As the loader was told, or as its sampler of batches was."""
        known = self.described.get(number)
        size = None if known is None else known["batch_size"] or known.get("sampler_batch_size")
        return size if isinstance(size, int) else None

    def weigh(self, number: int, batch: Any) -> None:
        """Note what its first batch holds."""
        if number in self.described and number not in self._batch_bytes:
            self._batch_bytes[number] = batch_bytes(batch)

    def facts(self, account: Account) -> list[dict[str, Any]]:
        """A loader trains, evaluates, or (None) has not been used yet."""
        kinds, evaluated = account.loaders, account.evaluated
        return [
            {
                "id": number,
                "training": kinds[number] == TRAINING if number in kinds else (None, False)[number in evaluated],
                "batch_bytes": self._batch_bytes.get(number),
                "made": self._made.get(number),
                **known,
            }
            for number, known in self.described.items()
        ]
