"""How the environment sets torch's allocator on a GPU, and what is left to set."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

# The first that is set counts; the second is known to every version.
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_SEGMENTS = re.compile(r"expandable_segments\s*:\s*(\w+)\s*,?\s*")
_ASYNC = re.compile(r"backend\s*:\s*cudaMallocAsync")


def growing_segments(environment: Mapping[str, Any]) -> str:
    """The setting that lets segments grow in place, beside what is set already. Empty: it is on, or the allocator is CUDA's own."""
    variables = environment.get("variables") or {}
    name = next((known for known in _VARIABLES if variables.get(known)), _VARIABLES[1])
    value = str(variables.get(name) or "")
    chosen = _SEGMENTS.search(value)
    if (chosen and chosen[1] == "True") or _ASYNC.search(value):
        return ""
    kept = _SEGMENTS.sub("", value).strip(" ,")
    return f"{name}={kept}{',' if kept else ''}expandable_segments:True"
