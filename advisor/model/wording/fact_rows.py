"""Rows of a report's facts; facts that have rows or tables of their own are left out of the list of all facts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.model.comm import exchanged_bytes
from rn50_advisor.advisor.model.gpu import gpu_memory_rows, kernel_classes, roofline

_TABULATED = (kernel_classes.FACT, roofline.FACT, gpu_memory_rows.FACT, exchanged_bytes.FACT, "storage", "lines")


def without_tabulated(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key not in _TABULATED}


def rows(facts: Mapping[str, Any], name: str) -> list[tuple[str, str]]:
    """Label and text of each row of the fact `name`; empty if it has another shape."""
    entries = facts.get(name)
    return [(str(label), str(text)) for label, text in entries.items()] if isinstance(entries, Mapping) else []
