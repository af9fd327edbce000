"""Which facts of a report have rows or tables of their own, so that the list of all facts leaves them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.core import device_memory, exchange, kernels, roofline

_ELSEWHERE = (kernels.FACT, roofline.FACT, device_memory.FACT, exchange.FACT, "storage")


def without_told(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key not in _ELSEWHERE}


def rows(facts: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    """Label and text of facts that are told in words; whatever is not of that shape is passed over."""
    told = facts.get(name)
    return [(str(label), str(text)) for label, text in told.items()] if isinstance(told, Mapping) else []
