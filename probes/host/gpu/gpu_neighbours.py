"""Detects processes of other jobs on this job's GPUs."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.probes.host.procfs import read_text

_NOT_AVAILABLE = (1 << 64) - 1
# The MPS server holds its clients' contexts, but the driver lists the clients, too.
_SERVERS = ("nvidia-cuda-mps", "nvidia-persiste")


def neighbours(nvml: Any, index: int, handle: Any, own: Collection[int], root: Path) -> list[Sample]:
    """Samples of the job's own and other processes on a GPU; empty if no process of the job is listed. Raises NVMLError.

    A container sees pids of another namespace, or none, so foreign processes are reported only if our own are listed. On a MIG GPU the
    driver may list the processes of all instances; processes of other instances are no neighbours.
    """
    listed = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    own_processes = [process for process in listed if process.pid in own]
    if not own_processes:
        return []
    instances = {process.gpuInstanceId for process in own_processes}
    beside = [process for process in listed if process.pid not in own and process.gpuInstanceId in instances]
    strangers = [process for process in beside if not _serves(process.pid, root)]
    scope = f"gpu:{index}"
    found = [
        Sample("gpu.own_processes", scope, float(len(own_processes))),
        Sample("gpu.foreign_processes", scope, float(len(strangers))),
    ]
    sizes = [process.usedGpuMemory for process in strangers]
    if any(size is None or size == _NOT_AVAILABLE for size in sizes):
        return found  # their memory is unknown, not zero
    return [*found, Sample("gpu.foreign_mem_bytes", scope, float(sum(sizes)))]


def foreign_sm(nvml: Any, index: int, handle: Any, own: Collection[int], since_us: int) -> tuple[list[Sample], int]:
    """SM use of foreign processes (percent) since `since_us`, and the time of the newest driver sample. Raises NVMLError."""
    try:
        utilization = nvml.nvmlDeviceGetProcessUtilization(handle, since_us)
    except nvml.NVMLError as error:
        # no use since; the bindings also raise "success" for an empty result
        if error.value not in (nvml.NVML_SUCCESS, nvml.NVML_ERROR_NOT_FOUND):
            raise
        return [Sample("gpu.foreign_sm_pct", f"gpu:{index}", 0.0)], since_us
    newest = max((int(sample.timeStamp) for sample in utilization), default=since_us)
    by_pid: dict[int, list[int]] = {}
    for sample in utilization:
        if sample.pid not in own and sample.smUtil <= 100:
            by_pid.setdefault(sample.pid, []).append(sample.smUtil)
    share = sum(sum(used) / len(used) for used in by_pid.values())
    return [Sample("gpu.foreign_sm_pct", f"gpu:{index}", min(100.0, share))], newest


def _serves(pid: int, root: Path) -> bool:
    return (read_text(root / f"proc/{pid}/comm") or "").startswith(_SERVERS)
