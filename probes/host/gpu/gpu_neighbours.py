"""Lists the processes on this job's GPUs, and detects those of other jobs."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.probes.documents.event_documents import GpuProcess
from rn50_advisor.probes.host.procfs import read_text

_NOT_AVAILABLE = (1 << 64) - 1
# The MPS server holds its clients' contexts, but the driver lists the clients, too.
_SERVERS = ("nvidia-cuda-mps", "nvidia-persiste")


LISTED_MAX = 32  # processes of a GPU that are recorded by name


@dataclass(frozen=True, slots=True)
class Neighbours:
    """Counts and memory as samples, and the processes, our own first. Both are empty if no process of the job is listed."""

    samples: tuple[Sample, ...] = ()
    processes: tuple[GpuProcess, ...] = ()


def neighbours(nvml: Any, index: int, handle: Any, own: Collection[int], root: Path) -> Neighbours:
    """The job's own and other processes on a GPU. Raises NVMLError.

    A container sees pids of another namespace, or none, so foreign processes are reported only if our own are listed. On a MIG GPU the
    driver may list the processes of all instances; processes of other instances are no neighbours.
    """
    listed = nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    own_processes = [process for process in listed if process.pid in own]
    if not own_processes:
        return Neighbours()
    instances = {process.gpuInstanceId for process in own_processes}
    beside = [process for process in listed if process.pid not in own and process.gpuInstanceId in instances]
    strangers = [process for process in beside if not _serves(process.pid, root)]
    scope = f"gpu:{index}"
    found: tuple[Sample, ...] = (
        Sample("gpu.own_processes", scope, float(len(own_processes))),
        Sample("gpu.foreign_processes", scope, float(len(strangers))),
    )
    users = _users(root)
    listed_first = [*own_processes, *sorted(strangers, key=lambda process: -(_memory(process) or 0))][:LISTED_MAX]
    processes = tuple(
        GpuProcess(
            pid=process.pid,
            user=_user(process.pid, root, users),
            name=(read_text(root / f"proc/{process.pid}/comm") or "").strip(),
            mem_bytes=_memory(process),
            own=process.pid in own,
        )
        for process in listed_first
    )
    sizes = [_memory(process) for process in strangers]
    if not any(size is None for size in sizes):  # else their memory is unknown, not zero
        found = (*found, Sample("gpu.foreign_mem_bytes", scope, float(sum(size or 0 for size in sizes))))
    return Neighbours(found, processes)


def _memory(process: Any) -> int | None:
    size = process.usedGpuMemory
    return None if size is None or size == _NOT_AVAILABLE else int(size)


def _users(root: Path) -> dict[str, str]:
    """Names by uid from /etc/passwd alone: a directory service may take seconds to answer."""
    entries = (line.split(":") for line in (read_text(root / "etc/passwd") or "").splitlines())
    return {entry[2]: entry[0] for entry in entries if len(entry) > 2}


def _user(pid: int, root: Path, users: dict[str, str]) -> str:
    """`uid 1234` for a user of a directory service; empty for a process that has ended."""
    for line in (read_text(root / f"proc/{pid}/status") or "").splitlines():
        if line.startswith("Uid:"):
            uid = line.split()[1]
            return users.get(uid, f"uid {uid}")
    return ""


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
