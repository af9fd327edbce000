"""What a rank says about a trial: which changes it made, which it refused, and when it switched."""

from __future__ import annotations

from typing import Annotated, TypedDict

from msgspec import Meta

from .bounded_numbers import Whole

_Pair = Annotated[list[Whole], Meta(min_length=2, max_length=2)]


class TrialFacts(TypedDict):
    """Changes have the index that they have in the request: those of `changes` first, then those of all variants in their order.

    `applied`: index and how often, for each change; 0: never yet. `refused`: index and the first reason; the job ran as if it had not been
    asked for; index -1: the whole request. `switches`: step and variant from this step on, the latest ones.
    """

    applied: list[_Pair]
    refused: list[tuple[Whole, str]]
    switches: list[_Pair]
