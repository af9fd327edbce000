"""Settings of torch's GPU allocator in the environment, and the one that avoids fragmentation."""

from __future__ import annotations

import re

from rn50_advisor.advisor.model.job_changes import EnvironmentChange
from rn50_advisor.probes.documents.machine_documents import MachineFacts

# The first variable that is set takes effect. Every version of torch knows the second one.
_VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
_SEGMENTS = re.compile(r"expandable_segments\s*:\s*(\w+)\s*,?\s*")
_ASYNC = re.compile(r"backend\s*:\s*cudaMallocAsync")


def growing_segments(environment: MachineFacts) -> EnvironmentChange | None:
    """The change that adds growing segments to the present settings; None if they are on or if CUDA's own allocator is used."""
    variables = environment.get("variables", {})
    name = next((known for known in _VARIABLES if variables.get(known)), _VARIABLES[1])
    value = variables.get(name, "")
    chosen = _SEGMENTS.search(value)
    if (chosen and chosen[1] == "True") or _ASYNC.search(value):
        return None
    kept = _SEGMENTS.sub("", value).strip(" ,")
    return EnvironmentChange(((name, f"{kept}{',' if kept else ''}expandable_segments:True"),))
