"""Debugging aids that are switched on while a job trains: seen as they stand when a handful of backward passes begin.

Between steps is no place to ask: `with torch.autograd.detect_anomaly():` stands around the step, within the loop.
"""

from __future__ import annotations

import os
import sys
from typing import Any

FROM_STEP = 25  # before, a profiler may have been asked for the first steps alone
# Variables of the environment that slow every step, and with what value; None: with any.
_VARIABLES = {
    "CUDA_LAUNCH_BLOCKING": ("1",),
    "HIP_LAUNCH_BLOCKING": ("1",),
    "PYTORCH_NO_CUDA_MEMORY_CACHING": None,
    "TORCH_DISTRIBUTED_DEBUG": ("DETAIL",),
    "NCCL_DEBUG": ("TRACE",),
}
_TOOLS = (0, 1, 2)  # of sys.monitoring (Python 3.12): a debugger, coverage, a profiler


def look(torch: Any, values: dict[str, Any], *, profiled_by_us: bool) -> None:
    """Count what is on in the training thread, under `debugging` of these facts."""
    told = values.setdefault("debugging", {"looks": 0, "on": {}})
    told["looks"] += 1
    for name in _aids(torch, profiled_by_us=profiled_by_us):
        told["on"][name] = told["on"].get(name, 0) + 1


def _aids(torch: Any, *, profiled_by_us: bool) -> list[str]:
    found = []
    if torch.is_anomaly_enabled():
        found.append("anomaly detection")
    if torch.autograd._profiler_enabled():
        found += [] if profiled_by_us else ["profiler"]
    elif sys.gettrace() is not None or sys.getprofile() is not None or _monitored():
        found.append("tracer")  # torch's profiler brings one of its own
    for name, values in _VARIABLES.items():
        value = os.environ.get(name)
        if value and (values is None or value.upper() in values):
            found.append(name)
    return found


def _monitored() -> bool:
    monitoring = getattr(sys, "monitoring", None)
    return monitoring is not None and any(
        monitoring.get_tool(tool) is not None and monitoring.get_events(tool) for tool in _TOOLS
    )
