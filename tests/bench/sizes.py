"""Lengths of the timed steps, named by their approximate duration on one core of a server."""

from __future__ import annotations

SIZES = ("1ms", "5ms", "50ms", "250ms")


def nominal_s(size: str) -> float:
    return int(size.removesuffix("ms")) / 1e3
