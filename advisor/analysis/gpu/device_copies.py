"""Host-to-device copies of each step and the time they take."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.gpu.host_pacing import runs_dry
from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites, HostCopy
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.pace_measures import COPY_FLOAT_PICTURES_MB, COPY_MB
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.wording.quantities import duration, number

_UNTIMED_SHARE_MAX = 0.02  # of the bytes; labels are a smaller share next to images
_DEEP = "; run with --deep"


@dataclass(frozen=True, slots=True)
class CopyTime:
    """Seconds per step that one rank's host-to-device copies take: typical, at best and at worst."""

    usual_s: float
    best_s: float
    worst_s: float
    in_forward_s: float  # part of the time that delays the forward's kernels; it is no compute
    basis: str


def copy_times(
    recording: Recording, call_sites: CallSites, windows: Sequence[DeepWindow], values: Measured
) -> tuple[dict[int, CopyTime], str]:
    """Copy times by rank, where copies were timed, and the reason why those of other ranks were not."""
    deep_windows = {window.rank: window for window in windows if window.device == "cuda"}
    found: dict[int, CopyTime] = {}
    why = ""
    for rank in process_by_rank(recording.processes):
        copies = [copy for copy in call_sites.copies if copy.rank == rank]
        if rank in deep_windows:
            copy_time = _by_window(deep_windows[rank], copies)
        elif copies:
            copy_time = _by_host(copies, dry=runs_dry(recording.gpu_steps.get(rank)))
        else:
            copy_time = f"{values.why(COPY_MB) or 'no copy of the training thread was seen in most steps'}{_DEEP}"
        if isinstance(copy_time, CopyTime):
            found[rank] = copy_time
        else:
            why = copy_time
    return found, why


def _by_window(window: DeepWindow, copies: Sequence[HostCopy]) -> CopyTime | str:
    whole, rate = window.pinned_bytes + window.pageable_bytes, window.pinned_mb_per_s
    if whole <= 0:
        return "nothing was copied to the GPU in the profiler's window"
    if rate is None and window.pinned_bytes > _UNTIMED_SHARE_MAX * whole:
        return "no copy in the profiler's window was large enough to measure the link"
    pinned_mb = window.pinned_bytes / 1e6 if rate else 0.0
    rates = (rate, window.pinned_most_mb_per_s, window.pinned_least_mb_per_s)
    usual, best, worst = (window.pageable_s + pinned_mb / (each or rate or 1.0) for each in rates)
    if best <= 0:
        return "the copies of the profiler's window were too short to be timed"
    # the phase of a copy is known only if the copy was seen from the host
    in_forward = sum(copy.mb for copy in _in_forward(copies)) / max(sum(copy.mb for copy in copies), 1e-9)
    parts = [f"{number(round(pinned_mb, 1))} MB from pinned memory at {number(round(rate))} MB/s"] if rate else []
    parts += [f"{duration(window.pageable_s)} of copies from pageable memory"] if window.pageable_s > 0 else []
    basis = f"{' and '.join(parts)}, in a profiler's window"
    return CopyTime(usual, best, worst, in_forward * min(usual, window.idle.get("copy", 0.0)), basis)


def _by_host(copies: Sequence[HostCopy], *, dry: bool) -> CopyTime | str:
    """Copy time from copies that block the host until they are done. They also wait for kernels queued before them."""
    timed = [copy for copy in copies if not (copy.pinned and copy.non_blocking)]
    whole_mb = sum(copy.mb for copy in copies)
    if whole_mb - sum(copy.mb for copy in timed) > _UNTIMED_SHARE_MAX * whole_mb:
        return f"non-blocking copies were not timed{_DEEP}"
    if not dry and any(not copy.aside for copy in timed):
        return f"how long copies wait for work queued on the GPU before them is unknown{_DEEP}"
    usual, least = sum(copy.blocked_s for copy in timed), sum(copy.least_s for copy in timed)
    if least <= 0:
        return f"copies were too short to be timed{_DEEP}"
    in_forward = sum(copy.blocked_s for copy in _in_forward(timed))
    basis = (
        f"copies hold the host {duration(usual)} per step, at least {duration(least)} with nothing queued before them"
    )
    return CopyTime(usual, least, usual, in_forward, basis)


def _in_forward(copies: Iterable[HostCopy]) -> list[HostCopy]:
    return [copy for copy in copies if copy.phase == "forward" and not copy.aside]


def copy_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """`copy.float_pictures_mb` of every rank whose batch was inspected; 0 unless its images were bytes and are copied as floats."""
    found = Measured()
    processes = process_by_rank(recording.processes)
    for rank, steps in steady.items():
        facts = recording.facts.get(processes[rank].pid, {}) if rank in processes else {}
        pictures = facts.get("pictures")
        if not facts.get("cuda"):
            found.missing[COPY_FLOAT_PICTURES_MB, rank] = "no CUDA device: nothing is copied"
        elif not pictures:
            found.missing[COPY_FLOAT_PICTURES_MB, rank] = "no batch of images was seen"
        elif pictures["device"] == "cpu" and pictures["dtype"] != "uint8" and pictures["from_bytes"] is None:
            found.missing[COPY_FLOAT_PICTURES_MB, rank] = (
                "the batches inspected do not show whether the images were bytes"
            )
        else:
            crosses = pictures["device"] == "cpu" and bool(pictures["from_bytes"])
            batches = max(steps.per_step("micro_batches"), 1.0)
            found[COPY_FLOAT_PICTURES_MB, rank] = crosses * batches * pictures["bytes"] / 1e6
    return found
