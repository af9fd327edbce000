"""What the allocator of each rank held, by the recorder's looks at it and by what its optimizer steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.model.gpu.gpu_memory_rows import DeviceMemory
from rn50_advisor.advisor.model.recording import Recording


def device_memory(recording: Recording) -> tuple[DeviceMemory, ...]:
    """Of every rank whose allocator was looked at, warm-up included: a peak is a peak."""
    found = []
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        table = recording.gpu_steps.get(rank)
        looks = table[(table["allocated_bytes"] >= 0) & (table["reserved_bytes"] > 0)] if table is not None else None
        if looks is None or not looks.size:
            continue
        facts = recording.facts.get(process.pid, {})
        cuda, held = facts.get("cuda"), facts.get("optimizer")
        total = cuda.get("memory_bytes") if isinstance(cuda, Mapping) else None
        found.append(
            DeviceMemory(
                rank=rank,
                allocated=float(looks["allocated_bytes"].max()),
                peak=float(looks["peak_bytes"].max()),
                reserved=float(looks["reserved_bytes"].max()),
                retries=float(looks["alloc_retries"].max() - looks["alloc_retries"].min()),
                total=float(total) if isinstance(total, int) else None,
                **(_parts(held) if isinstance(held, Mapping) else {}),
            )
        )
    return tuple(found)


def _parts(held: Mapping[str, Any]) -> dict[str, float]:
    names = {"parameters": "parameter_bytes", "gradients": "gradient_bytes", "state": "state_bytes"}
    return {part: float(held[name]) for part, name in names.items() if isinstance(held.get(name), int)}
