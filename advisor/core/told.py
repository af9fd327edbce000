"""Which facts of a report have rows or tables of their own, so that the list of all facts leaves them out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from advisor.core import device_memory, kernels, roofline

_ELSEWHERE = (kernels.FACT, roofline.FACT, device_memory.FACT)


def without_told(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in facts.items() if key not in _ELSEWHERE}
