"""Bounded numbers of documents: the sum of two fits in 64 bits, and NaN is rejected. Nanoseconds since 1970 are about 1.8e18."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

NUMBER_MAX = 1 << 62
_BOUNDS = Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)

Whole = Annotated[int, _BOUNDS]
Number = Annotated[float, _BOUNDS]
Flag = bool | Whole  # torch reports some switches as integers
