"""The deep (profiler) windows of a run, as its agent read them from the ranks' traces, and the measures derived from them.

Torch's profiler slows down the host: a step takes longer, and the GPU waits for launches and after synchronisations where it otherwise
would not. The excess of the window's step over a usual step is therefore subtracted from both kinds of idle time, in proportion. Shares are
of a usual step.
"""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.model.gpu.kernel_classes import IDLE_CAUSES, DeepWindow, window_from
from rn50_advisor.advisor.model.measures.kernel_measures import (
    KERNEL_ATTENTION_S,
    KERNEL_BUSY_SHARE,
    KERNEL_CONV_SHARE,
    KERNEL_COPY_S,
    KERNEL_ELEMENTWISE_SHARE,
    KERNEL_ELIGIBLE_SHARE,
    KERNEL_FLOPS,
    KERNEL_IDLE_COPY_SHARE,
    KERNEL_IDLE_INPUT_SHARE,
    KERNEL_IDLE_LAUNCH_SHARE,
    KERNEL_IDLE_OTHER_SHARE,
    KERNEL_IDLE_SHARE,
    KERNEL_IDLE_SYNC_SHARE,
    KERNEL_LAUNCHES,
    KERNEL_LAYOUT_SHARE,
    KERNEL_MATMUL_SHARE,
    KERNEL_MEAN_S,
    KERNEL_NCCL_OVERLAP_SHARE,
    KERNEL_NCCL_S,
    KERNEL_NCCL_SHARE,
    KERNEL_NORM_SHARE,
    KERNEL_OPTIMIZER_SHARE,
    KERNEL_OTHER_SHARE,
    KERNEL_PAGEABLE_MB,
    KERNEL_PAGEABLE_S,
    KERNEL_PINNED_MB,
    KERNEL_PINNED_MB_PER_S,
    KERNEL_SYNC_S,
    KERNEL_SYNCS,
    KERNEL_TENSOR_CORE_SHARE,
    KERNEL_WINDOW_STEPS,
)
from rn50_advisor.advisor.model.measures.measure import JOB, RankMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_TIME_S
from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.probes.documents.event_documents import TracedWindow

_MB = 1e6
_OF_CLASS = {
    "conv": KERNEL_CONV_SHARE,
    "matmul": KERNEL_MATMUL_SHARE,
    "norm": KERNEL_NORM_SHARE,
    "elementwise": KERNEL_ELEMENTWISE_SHARE,
    "layout": KERNEL_LAYOUT_SHARE,
    "optimizer": KERNEL_OPTIMIZER_SHARE,
    "nccl": KERNEL_NCCL_SHARE,
    "other": KERNEL_OTHER_SHARE,
}
_OF_CAUSE = {
    "input": KERNEL_IDLE_INPUT_SHARE,
    "copy": KERNEL_IDLE_COPY_SHARE,
    "sync": KERNEL_IDLE_SYNC_SHARE,
    "launch": KERNEL_IDLE_LAUNCH_SHARE,
    "other": KERNEL_IDLE_OTHER_SHARE,
}


def deep_windows(recording: Recording) -> tuple[DeepWindow, ...]:
    """The last deep window of each rank, sorted by rank."""
    found: dict[int, DeepWindow] = {}
    for event in events_of(recording.events, TracedWindow):
        try:
            window = window_from(event.data)
        except (TypeError, ValueError, KeyError):
            continue  # written by another version
        # a merged run gives ranks other numbers than the agent used
        rank = window.rank if event.rank is None else event.rank
        found[rank] = replace(window, rank=rank)
    return tuple(found[rank] for rank in sorted(found))


def deep_values(recording: Recording, windows: tuple[DeepWindow, ...], values: Measured) -> Measured:
    """Measures of deep windows on a GPU. Windows on a CPU have operators but no kernels."""
    found = Measured()
    on_gpu = [window for window in windows if window.device == "cuda"]
    for window in on_gpu:
        window_values = _values(window, values.get((STEP_TIME_S, JOB)))
        found.update({(measure, window.rank): value for measure, value in window_values.items()})
    if not on_gpu:
        cuda = any(recording.facts.get(p.pid, {}).get("cuda") for p in process_by_rank(recording.processes).values())
        without = (
            "not profiled: run with --deep for kernels by class and idle time"
            if cuda
            else "no CUDA device: there are no kernels"
        )
        found.missing[KERNEL_WINDOW_STEPS, JOB] = without
    return found


def _values(window: DeepWindow, usual_s: float | None) -> dict[RankMeasure, float]:
    """Measures of one window. `usual_s` is the duration of a step without profiling."""
    step_s = min(window.step_s, usual_s) if usual_s else window.step_s
    whole = max(window.kernels_s, 1e-12)
    found: dict[RankMeasure, float | None] = {
        KERNEL_WINDOW_STEPS: float(window.steps),
        KERNEL_BUSY_SHARE: None if window.busy_s is None else min(1.0, window.busy_s / step_s),
        KERNEL_TENSOR_CORE_SHARE: window.tensor_core_share,
        KERNEL_ELIGIBLE_SHARE: (window.classes.get("conv", 0.0) + window.classes.get("matmul", 0.0)) / whole,
        KERNEL_LAUNCHES: window.launches,
        KERNEL_MEAN_S: window.mean_kernel_s,
        KERNEL_SYNCS: window.syncs,
        KERNEL_SYNC_S: window.sync_s,
        KERNEL_PINNED_MB: window.pinned_bytes / _MB,
        KERNEL_PINNED_MB_PER_S: window.pinned_mb_per_s,
        KERNEL_PAGEABLE_MB: window.pageable_bytes / _MB,
        KERNEL_PAGEABLE_S: window.pageable_s,
        KERNEL_COPY_S: window.copy_s,
        KERNEL_NCCL_S: window.nccl_s,
        KERNEL_NCCL_OVERLAP_SHARE: window.nccl_overlap_share,
        KERNEL_FLOPS: window.flops,
        KERNEL_ATTENTION_S: window.attention_s,
    }
    found.update({measure: window.classes.get(kind, 0.0) / whole for kind, measure in _OF_CLASS.items()})
    if window.idle:
        idle = dict.fromkeys(IDLE_CAUSES, 0.0) | dict(window.idle)
        by_host = idle["sync"] + idle["launch"]
        keep = max(0.0, 1.0 - (window.step_s - step_s) / max(by_host, 1e-12))
        idle |= {cause: keep * idle[cause] for cause in ("sync", "launch")}
        found[KERNEL_IDLE_SHARE] = min(1.0, sum(idle.values()) / step_s)
        found.update({measure: min(1.0, idle[cause] / step_s) for cause, measure in _OF_CAUSE.items()})
    return {name: value for name, value in found.items() if value is not None}
