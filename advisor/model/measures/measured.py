"""A table of values by measure and scope, readable for one scope or for all ranks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, MutableMapping
from typing import TypeVar, cast, overload

from rn50_advisor.advisor.model.measures.measure import JOB, Measure, RankMeasure, Scope, Scoped

K = TypeVar("K", bound=tuple[Measure, Scope])
T = TypeVar("T")
D = TypeVar("D")


class ByMeasure(MutableMapping[K, T]):
    """A mapping from (measure, scope), grouped by measure.

    A thousand ranks have a hundred thousand values; without the grouping, each of three hundred lookups would go through all of them.
    """

    __slots__ = ("_open", "_rows")

    def __init__(self, known: Mapping[K, T] | None = None) -> None:
        self._rows: dict[Measure, dict[Scope, T]] = {}
        self._open: frozenset[Measure] | None = None  # None: all measures may be read
        self.update(known or {})

    def row(self, measure: Measure) -> Mapping[Scope, T]:
        """Values of every scope that has the measure. Raises LookupError if it must not be read."""
        if self._open is not None and measure not in self._open:
            raise LookupError(f"{measure} is read and not declared as needed")
        return self._rows.get(measure, {})

    def close_but_for(self, measures: frozenset[Measure]) -> None:
        self._rows = {measure: row for measure, row in self._rows.items() if measure in measures}
        self._open = measures

    def add_rows(self, other: ByMeasure[K, T]) -> None:
        for measure, row in other._rows.items():
            self._rows.setdefault(measure, {}).update(row)

    def by_rank(self, measure: RankMeasure) -> dict[int, T]:
        """Values of every rank that has the measure, in order of ranks."""
        return dict(sorted(self._of_numbers(measure)))

    def has(self, measure: Measure) -> bool:
        return bool(self.row(measure))

    def measures(self) -> Iterable[Measure]:
        return self._rows.keys()

    def _of_numbers(self, measure: Measure) -> Iterator[tuple[int, T]]:
        return ((scope, value) for scope, value in self.row(measure).items() if isinstance(scope, int))

    def __getitem__(self, key: K) -> T:
        return self.row(key[0])[key[1]]

    @overload
    def get(self, key: K) -> T | None: ...
    @overload
    def get(self, key: K, default: D) -> T | D: ...
    def get(self, key: K, default: D | None = None) -> T | D | None:
        return self.row(key[0]).get(key[1], default)

    def __setitem__(self, key: K, value: T) -> None:
        self._rows.setdefault(key[0], {})[key[1]] = value

    def __delitem__(self, key: K) -> None:
        del self._rows[key[0]][key[1]]

    def __iter__(self) -> Iterator[K]:
        return (cast(K, (measure, scope)) for measure, row in self._rows.items() for scope in row)

    def __len__(self) -> int:
        return sum(map(len, self._rows.values()))


Reasons = ByMeasure[tuple[Measure, Scope], str]


class Measured(ByMeasure[Scoped, float]):
    """Values of measures, and the reasons for the missing ones."""

    __slots__ = ("missing",)

    def __init__(self, known: Mapping[Scoped, float] | None = None) -> None:
        super().__init__(known)
        self.missing = Reasons()

    def why(self, measure: Measure, rank: int | None = None) -> str:
        """The reason why the measure is missing, for this rank if it has its own reason; empty if no reason is known."""
        reasons = self.missing.row(measure)
        return reasons.get(JOB if rank is None else rank) or next(iter([*reasons.values()][::-1]), "")

    def add(self, other: Measured) -> None:
        """Adds the values and reasons of `other`; if both have an entry, the other's wins."""
        self.add_rows(other)
        self.missing.add_rows(other.missing)

    def only(self, measures: frozenset[Measure]) -> Measured:
        """The same values for a reader that may read only these measures."""
        found = Measured()
        found._rows, found.missing._rows = self._rows, self.missing._rows
        found.close_but_for(measures)
        found.missing.close_but_for(measures)
        return found
