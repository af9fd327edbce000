"""Memory of a GPU that this job does not explain: what another process holds where the driver lists none, as in most containers.

The driver counts all memory in use. The job's is what torch's allocator has reserved, and the contexts and libraries of its processes,
which take about as much on every GPU of the job.
"""

from __future__ import annotations

from statistics import median

import numpy as np

from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_FOREIGN_PROCESSES, GPU_UNEXPLAINED_MB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording, Table

_MB = 1e6
# Of one process on the only GPU of its kind: context, kernels and workspaces of cuDNN, buffers of NCCL.
_BESIDE_TORCH_MB = 3_000.0


def unexplained_values(recording: Recording, window: Window, gpus: tuple[Gpu, ...], known: Measured) -> Measured:
    """For GPUs whose processes are not listed: their memory beyond torch's, less that of the job's other GPUs of the same model."""
    beside = {
        gpu: rest
        for gpu in gpus
        if gpu.ranks and not gpu.mig and (rest := _beside_torch_mb(recording, window, gpu)) is not None
    }
    values = Measured()
    for gpu, rest_mb in beside.items():
        if (GPU_FOREIGN_PROCESSES, gpu.index) not in known:
            peers = [other_mb for other, other_mb in beside.items() if other is not gpu and other.name == gpu.name]
            usual_mb = median(peers) if peers else _BESIDE_TORCH_MB * len(gpu.ranks)
            values[GPU_UNEXPLAINED_MB, gpu.index] = max(0.0, rest_mb - usual_mb)
    return values


def _beside_torch_mb(recording: Recording, window: Window, gpu: Gpu) -> float | None:
    """Memory in use beyond what torch has reserved in all of the GPU's ranks; None if that is not known."""
    used = window.level("gpu.mem_used_bytes", f"gpu:{gpu.index}")
    reserved = [_reserved(recording.gpu_steps.get(rank)) for rank in gpu.ranks]
    known = [size for size in reserved if size is not None]
    if used is None or len(known) < len(reserved):
        return None
    return (used - sum(known)) / _MB


def _reserved(table: Table | None) -> float | None:
    rows = np.empty(0) if table is None else table["reserved_bytes"][table["reserved_bytes"] > 0]
    return float(rows.max()) if rows.size else None
