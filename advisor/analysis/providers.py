"""Providers: measuring functions that declare the measures they give and need. The declarations determine their order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Generic, TypeVar

from rn50_advisor.advisor.model.measures import MEASURES
from rn50_advisor.advisor.model.measures.measure import Measure
from rn50_advisor.advisor.model.measures.measured import Measured

C_contra = TypeVar("C_contra", contravariant=True)


@dataclass(frozen=True, slots=True, eq=False)
class Provider(Generic[C_contra]):
    """A measuring function with its declarations. `measure` is pure and reads only the run's context and the measures in `needs`."""

    measure: Callable[[C_contra, Measured], Measured]
    gives: frozenset[Measure]
    needs: frozenset[Measure] = frozenset()


def named(*patterns: str) -> frozenset[Measure]:
    """Returns all measures whose names match a pattern. Raises KeyError if a pattern matches none."""
    found: set[Measure] = set()
    for pattern in patterns:
        fitting = _fitting(pattern)
        if not fitting:
            raise KeyError(pattern)
        found |= fitting
    return frozenset(found)


def _fitting(pattern: str) -> set[Measure]:
    if pattern in MEASURES:  # most are names, and each comparison with all measures costs every start of the advisor
        return {MEASURES[pattern]}
    return {measure for name, measure in MEASURES.items() if fnmatchcase(name, pattern)}


def in_order(providers: Iterable[Provider[C_contra]]) -> list[Provider[C_contra]]:
    """Sorts providers so that each runs after those it needs. Raises ValueError if two give the same measure or need each other."""
    giver: dict[Measure, Provider[C_contra]] = {}
    given = list(providers)
    for provider in given:
        for measure in provider.gives:
            if giver.setdefault(measure, provider) is not provider:
                raise ValueError(f"two providers give {measure}")
    ordered: dict[Provider[C_contra], bool] = {}  # False while the providers it needs are being placed

    def place(provider: Provider[C_contra]) -> None:
        if ordered.get(provider) is False:
            raise ValueError(f"what gives {', '.join(sorted(provider.gives))} needs itself")
        if provider not in ordered:
            ordered[provider] = False
            for measure in sorted(provider.needs):
                if measure in giver:
                    place(giver[measure])
            del ordered[provider]
            ordered[provider] = True

    for provider in given:
        place(provider)
    return list(ordered)


def provide(providers: Iterable[Provider[C_contra]], context: C_contra, known: Measured | None = None) -> Measured:
    """Adds the measures of all providers to the known ones. Raises LookupError if a provider reads or gives more than it declared."""
    found = Measured()
    if known is not None:
        found.add(known)
    for provider in in_order(providers):
        given = provider.measure(context, found.only(provider.needs))
        stray = {*given.measures(), *given.missing.measures()} - provider.gives
        if stray:
            raise LookupError(f"{', '.join(sorted(stray))} is given and not declared")
        found.add(given)
    return found
