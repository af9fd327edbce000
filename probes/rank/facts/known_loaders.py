"""The job's DataLoaders by number: description, number of creations, size of the first batch."""

from __future__ import annotations

import weakref
from functools import partial
from typing import TYPE_CHECKING, Any

from ..steps.step_account import TRAINING
from .batch_contents import batch_bytes, batch_tensors
from .loader_facts import describe_loader, is_remade

if TYPE_CHECKING:
    from ...documents.loader_documents import DescribedLoader, RecordedLoader
    from ..steps.step_account import Account


# Numbers that identify objects of the job while they live.
class Numbers:
    """Numbers by object identity, since the job's objects may define any comparison and no hash. Keeps no object alive."""

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
            # a callback implemented in C: if a signal handler raised inside a Python one, its exception would be lost
            known[key] = weakref.ref(item, partial(known.pop, key)), number
        except TypeError:
            pass  # a list, for example, supports no weak references


LOADERS_MAX = 100  # a job may keep creating new loaders
_NO_BATCH = None, None


class KnownLoaders:
    """The job's loaders. `described` also has entries for iterators of other libraries."""

    def __init__(self) -> None:
        self.described: dict[int, DescribedLoader] = {}
        self.numbers = Numbers()
        self._loader_of = Numbers()  # dataset -> its latest loader
        self._first_batch: dict[int, tuple[int, int]] = {}  # bytes and tensors of each loader's
        self._made: dict[int, int] = {}  # number of creations of each
        self._replaced: set[int] = set()  # loaders that a library replaced by another one
        self._dispatched: dict[int, bool] = {}  # loaders whose batches rank 0 sends to all; True: it splits each batch

    def add(self, loader: Any) -> None:
        """Adds a loader. One that is recreated at the same line for the same data (for each evaluation, say) keeps its number."""
        described, replaced = describe_loader(loader), -1
        if is_remade(described):  # the line to change is that of the original loader, in the job or its trainer
            replaced = self._loader_of.get(loader.dataset)
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
        self._loader_of.put(loader.dataset, number)

    def batch_size(self, number: int) -> int | None:
        """The batch size given to the loader or to its batch sampler."""
        known = self.described.get(number)
        size = None if known is None else known["batch_size"] or known.get("sampler_batch_size")
        return size if isinstance(size, int) else None

    def dispatched(self, number: int, *, split: bool) -> None:
        """Records that rank 0 sends the batches of this loader to all ranks. `split`: each batch is divided among them."""
        if number in self.described:
            self._dispatched[number] = split

    def weigh(self, number: int, batch: Any) -> None:
        """Records the size of a loader's first batch."""
        if number in self.described and number not in self._first_batch:
            self._first_batch[number] = batch_bytes(batch), batch_tensors(batch)

    def facts(self, account: Account) -> list[RecordedLoader]:
        """All loaders with their use: training, evaluation, or None for not used yet. Omits loaders replaced before their first use."""
        kinds, evaluated = account.loaders, account.evaluated
        idle = self._replaced - set(kinds) - evaluated
        return [
            {
                "id": number,
                "training": kinds[number] == TRAINING if number in kinds else (None, False)[number in evaluated],
                "batch_bytes": self._first_batch.get(number, _NO_BATCH)[0],
                "batch_tensors": self._first_batch.get(number, _NO_BATCH)[1],
                "made": self._made.get(number),
                **known,
                **self._sharing(number),
            }
            for number, known in self.described.items()
            if number not in idle
        ]

    def _sharing(self, number: int) -> RecordedLoader:
        split = self._dispatched.get(number)
        return {} if split is None else {"dispatches": True, "split_batches": split}
