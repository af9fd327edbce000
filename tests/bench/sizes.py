"""Lengths of the timed steps, named by their approximate duration on one core of a server."""

from __future__ import annotations

SIZES = ("1ms", "5ms", "50ms", "250ms")
SHORTEST = "0.3ms"  # so short that the recorder thins its marks


def nominal_s(size: str) -> float:
    return float(size.removesuffix("ms")) / 1e3
