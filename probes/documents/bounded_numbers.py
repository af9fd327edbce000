"""Numbers of a document that arithmetic can hold: the sum of two fits 64 bits, and NaN is none. Nanoseconds since 1970 are 1.8e18."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta

NUMBER_MAX = 1 << 62
_BOUNDS = Meta(ge=-NUMBER_MAX, le=NUMBER_MAX)

Whole = Annotated[int, _BOUNDS]
Number = Annotated[float, _BOUNDS]
Flag = bool | Whole  # as torch reports some of its switches
