"""The job's DataLoaders, each by a number: what describes it, how often it was made, what its first batch held."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from ..step_account import TRAINING
from .loader_facts import batch_bytes, describe_loader, is_remade

if TYPE_CHECKING:
    from ...documents.loader_documents import DescribedLoader, ToldLoader
    from ..step_account import Account


# Numbers that identify objects of the job while they live.
class Numbers:
    """Keyed by identity, since the job's objects may define any comparison and no hash. Keeps no object alive."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[int, tuple[weakref.ref[Any], int]] = {}

    def get(self, item: Any) -> int:
        """The object's number; -1 if it has none."""
        known = self._known.get(id(item))
        return known[1] if known is not None and known[0]() is item else -1

    def put(self, item: Any, number: int) -> None:
        key, known = id(item), self._known
        try:
            # implemented in C: an exception of a signal handler inside a weakref callback would be lost
            known[key] = weakref.ref(item, partial(known.pop, key)), number
        except TypeError:
            pass  # a list, say, supports no weak reference


LOADERS_MAX = 100  # bounds the number, for jobs that keep creating new ones


class KnownLoaders:
    """`described` also holds entries added for iterators of other libraries."""

    def __init__(self) -> None:
        self.described: dict[int, DescribedLoader] = {}
        self.numbers = Numbers()
        self._fed_by = Numbers()  # data set -> its latest loader
        self._batch_bytes: dict[int, int] = {}  # bytes of each loader's first batch
        self._made: dict[int, int] = {}  # how often each was created
        self._replaced: set[int] = set()  # those that a library made another one for

    def add(self, loader: Any) -> None:
        """A loader recreated at the same line for the same data (for each evaluation, say) keeps its number."""
        described, replaced = describe_loader(loader), -1
        if is_remade(described):  # the line to change is where the job or its trainer created the original loader
            replaced = self._fed_by.get(loader.dataset)
            given = self.described.get(replaced)
            if given is not None:
                described["file"], described["line"] = given["file"], given["line"]
                del described["through"]
                if "through" in given:
                    described["through"] = given["through"]
        number = next((n for n, known in self.described.items() if known == described), len(self.described))
        if replaced not in (-1, number):
            self._replaced.add(replaced)
        self.numbers.put(loader, number)
        self._made[number] = self._made.get(number, 0) + 1
        if len(self.described) < LOADERS_MAX:
            self.described.setdefault(number, described)
        self._fed_by.put(loader.dataset, number)

    def batch_size(self, number: int) -> int | None:
        """The batch size given to the loader or to its batch sampler."""
        known = self.described.get(number)
        size = None if known is None else known["batch_size"] or known.get("sampler_batch_size")
        return size if isinstance(size, int) else None

    def weigh(self, number: int, batch: Any) -> None:
        """Notes the size of its first batch."""
        if number in self.described and number not in self._batch_bytes:
            self._batch_bytes[number] = batch_bytes(batch)

    def facts(self, account: Account) -> list[ToldLoader]:
        """Sets a loader's use: training, evaluation, or None for not used yet. One that was replaced before it was used is none."""
        kinds, evaluated = account.loaders, account.evaluated
        idle = self._replaced - set(kinds) - evaluated
        return [
            {
                "id": number,
                "training": kinds[number] == TRAINING if number in kinds else (None, False)[number in evaluated],
                "batch_bytes": self._batch_bytes.get(number),
                "made": self._made.get(number),
                **known,
            }
            for number, known in self.described.items()
            if number not in idle
        ]
