"""Three readings of how busy a GPU is, side by side: `utilisation_check.py OUT.json RUN ...`, for runs with a profiler window.

NVML's utilisation counts slices of time in which any kernel ran, a profiler window the time in which one did, CUDA events the time in which
nothing was queued, and GPM the SMs that had work. Prints a line for each run. Exits 1 if one of the first three is missing in a run, or if
they contradict each other: utilisation is taken as an upper bound of the busy time, and so are busy and idle time together of one step.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.measures.gpu_measures import (
    GPU_DRAM_ACTIVE_SHARE,
    GPU_HOST_PACED_S,
    GPU_IDLE_GAP_S,
    GPU_IDLE_INPUT_S,
    GPU_SM_ACTIVE_SHARE,
    GPU_TENSOR_ACTIVE_SHARE,
    GPU_UTIL_SHARE,
)
from rn50_advisor.advisor.model.measures.input_measures import BATCH_SAMPLES
from rn50_advisor.advisor.model.measures.kernel_measures import KERNEL_BUSY_SHARE, KERNEL_MEAN_S
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.rules.compute.compute_cost import on_gpu_of

Row = dict[str, float | None]

APART = 0.10  # of the time: the readings are of different moments
NEEDED = ("utilisation", "busy", "idle between steps")


def row_of(run: Path) -> Row:
    """The shares of rank 0's step and its length."""
    a = analyse(read_recording(run))
    step_s = a.value(STEP_TIME_S)
    idle = [seconds for measure in (GPU_IDLE_INPUT_S, GPU_IDLE_GAP_S) if (seconds := a.get(measure, 0)) is not None]
    paced_s, kernel_s = a.get(GPU_HOST_PACED_S, 0), a.get(KERNEL_MEAN_S, 0)
    return {
        "batch": a.get(BATCH_SAMPLES, 0),
        "step_ms": 1000 * step_s,
        "utilisation": on_gpu_of(a, 0, GPU_UTIL_SHARE),
        "busy": a.get(KERNEL_BUSY_SHARE, 0),
        "idle between steps": sum(idle) / step_s if idle else None,
        "at the host's pace": None if paced_s is None else paced_s / step_s,
        "SMs": on_gpu_of(a, 0, GPU_SM_ACTIVE_SHARE),
        "tensor cores": on_gpu_of(a, 0, GPU_TENSOR_ACTIVE_SHARE),
        "memory": on_gpu_of(a, 0, GPU_DRAM_ACTIVE_SHARE),
        "mean_kernel_us": None if kernel_s is None else 1e6 * kernel_s,
    }


def contradictions(row: Row) -> list[str]:
    """What is missing in the row, or contradicts the rest of it."""
    found = [f"no {name}" for name in NEEDED if row[name] is None]
    utilisation, busy, idle, active = (row[name] for name in (*NEEDED, "SMs"))
    if utilisation is not None and busy is not None and busy > utilisation + APART:
        found.append("kernels ran for longer than utilisation says")
    if busy is not None and idle is not None and busy + idle > 1.0 + APART:
        found.append("busy and idle time are more than the step")
    if utilisation is not None and active is not None and active > utilisation + APART:
        found.append("SMs had work for longer than utilisation says")
    return found


def line(row: Row) -> str:
    shares = (
        f"{name} {value:.2f}" for name, value in row.items() if value is not None and not name.startswith("batch")
    )
    return "; ".join([f"batch {row['batch'] or 0:.0f}: {', '.join(shares)}", *contradictions(row)])


def main(out: Path, runs: list[Path]) -> int:
    rows = [row_of(run) for run in runs]
    out.write_text(json.dumps(rows, indent=1))
    print("\n".join(map(line, rows)) or "no run")
    return not rows or any(map(contradictions, rows))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), list(map(Path, sys.argv[2:]))))
