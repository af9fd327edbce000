"""What the package is there for."""

from __future__ import annotations

from collections.abc import Iterable


def product(numbers: Iterable[float]) -> float:
    found = 1.0
    for number in numbers:
        found *= number
    return found
