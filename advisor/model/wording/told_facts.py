"""The facts of a report that have rows or tables of their own; the list of all facts leaves them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.model.comm import exchanged_bytes
from rn50_advisor.advisor.model.gpu import gpu_memory_rows, kernel_classes, roofline

_ELSEWHERE = (kernel_classes.FACT, roofline.FACT, gpu_memory_rows.FACT, exchanged_bytes.FACT, "storage")


def without_told(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key not in _ELSEWHERE}


def rows(facts: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    """Label and text of each row of the fact `name`; empty if it has another shape."""
    told = facts.get(name)
    return [(str(label), str(text)) for label, text in told.items()] if isinstance(told, Mapping) else []
