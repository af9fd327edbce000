"""The deep windows of a run, as its agent read them from the ranks' traces, and the numbers that rules may ask of them.

While torch's profiler records, the host does all it does more slowly: a step takes longer, and the GPU waits for the host, after launches
and after waits, where it would not have waited. What a step of the window took beyond a usual one is therefore taken from both, each in
proportion, and shares are of a usual step.
"""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.model.analysis import JOB
from rn50_advisor.advisor.model.gpu.kernel_classes import CLASSES, IDLE_CAUSES, DeepWindow, window_from
from rn50_advisor.advisor.model.recording import Recording

EVENT = "deep"
_MB = 1e6


def deep_windows(recording: Recording) -> tuple[DeepWindow, ...]:
    """The last one of each rank, by rank."""
    found: dict[int, DeepWindow] = {}
    for event in recording.events:
        if event.kind == EVENT:
            try:
                window = window_from(event.data)
            except (TypeError, ValueError, KeyError):
                continue  # of another version
            # in a merged run ranks were given other numbers than the agent knew
            rank = window.rank if event.rank is None else event.rank
            found[rank] = replace(window, rank=rank)
    return tuple(found[rank] for rank in sorted(found))


def deep_values(
    recording: Recording,
    windows: tuple[DeepWindow, ...],
    values: dict[tuple[str, str], float],
    missing: dict[str, str],
) -> None:
    """Adds those of windows on a GPU: operators of a CPU are no kernels."""
    on_gpu = [window for window in windows if window.device == "cuda"]
    for window in on_gpu:
        told = _values(window, values.get(("step.time_s", JOB)))
        values.update({(name, f"rank:{window.rank}"): value for name, value in told.items()})
    if not on_gpu:
        cuda = any(recording.facts.get(p.pid, {}).get("cuda") for p in process_by_rank(recording.processes).values())
        without = "no deep window was opened: run with --deep" if cuda else "no CUDA device: there are no kernels"
        missing["kernel.window_steps"] = without


def _values(window: DeepWindow, usual_s: float | None) -> dict[str, float]:
    """`usual_s`: a step that nobody looked into."""
    step_s = min(window.step_s, usual_s) if usual_s else window.step_s
    whole = max(window.kernels_s, 1e-12)
    found: dict[str, float | None] = {
        "kernel.window_steps": float(window.steps),
        "kernel.busy_share": None if window.busy_s is None else min(1.0, window.busy_s / step_s),
        "kernel.tensor_core_share": window.tensor_core_share,
        "kernel.eligible_share": (window.classes.get("conv", 0.0) + window.classes.get("matmul", 0.0)) / whole,
        "kernel.launches": window.launches,
        "kernel.mean_s": window.mean_kernel_s,
        "kernel.syncs": window.syncs,
        "kernel.sync_s": window.sync_s,
        "kernel.pinned_mb": window.pinned_bytes / _MB,
        "kernel.pinned_mb_per_s": window.pinned_mb_per_s,
        "kernel.pageable_mb": window.pageable_bytes / _MB,
        "kernel.pageable_s": window.pageable_s,
        "kernel.copy_s": window.copy_s,
        "kernel.nccl_s": window.nccl_s,
        "kernel.nccl_overlap_share": window.nccl_overlap_share,
        "kernel.flops": window.flops,
    }
    found.update({f"kernel.{kind}_share": window.classes.get(kind, 0.0) / whole for kind in CLASSES})
    if window.idle:
        idle = dict.fromkeys(IDLE_CAUSES, 0.0) | dict(window.idle)
        by_host = idle["sync"] + idle["launch"]
        keep = max(0.0, 1.0 - (window.step_s - step_s) / max(by_host, 1e-12))
        idle |= {cause: keep * idle[cause] for cause in ("sync", "launch")}
        found["kernel.idle_share"] = min(1.0, sum(idle.values()) / step_s)
        found.update({f"kernel.idle_{cause}_share": min(1.0, idle[cause] / step_s) for cause in IDLE_CAUSES})
    return {name: value for name, value in found.items() if value is not None}
