"""Reads the steps that the recorder inspected: synchronisations with the GPU, copies to it, precision and memory layout."""

from __future__ import annotations

from collections.abc import Iterator

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.trained_model import convolutions_of
from rn50_advisor.advisor.model.gpu.gpu_pace import Habits, HostCopy, Wait
from rn50_advisor.advisor.model.measures.measure import JOB, RankMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.pace_measures import (
    COPY_BLOCKING_MB,
    COPY_BLOCKING_S,
    COPY_MB,
    COPY_PAGEABLE_MB,
    COPY_PAGEABLE_S,
    LAYOUT_CHANNELS_FIRST,
    PARALLEL_DEVICES,
    PRECISION_CAPABILITY,
    PRECISION_HALF,
    PRECISION_TF32,
    SYNC_BLOCKED_S,
    SYNC_CALLS,
    SYNC_LOOKS,
)
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.rank_documents import CopySite, ModelFacts, RankFacts, SyncFacts, WaitSite

_STEPS_SHARE_MIN = 0.5  # of the inspected steps; rarer calls are no part of a usual step
_HALF = ("bfloat16", "float16")
_CONVOLUTIONS_MIN = 4  # a vision transformer has one, which cuts images into patches; it computes in matrix products
_UNSEEN = "calls that wait for the GPU were not searched for: "
_TOO_SHORT = "the run was too short, or the GPU was not in use at its start"
# Reasons by the recorder's code for them.
_WHY_UNSEEN = {
    "dynamo": "torch._dynamo was not loaded, and keeps on its import what it finds in torch.Tensor",
    "compiling": "torch was compiling in each step in which it was tried",
    "failed": "one inspection failed, and no more were made",
}


def habits(recording: Recording) -> Habits:
    """Call sites that wait for the GPU or copy to it in most steps."""
    waits: list[Wait] = []
    copies: list[HostCopy] = []
    for rank, told, looks in _looked_at(recording):
        waits += [_wait(rank, site, looks) for site in told["syncs"].get("sites", ())]
        copies += [_copy(rank, site, looks) for site in told.get("copies", ()) if _often(site, looks)]
    usual = [wait for wait in waits if wait.steps_share >= _STEPS_SHARE_MIN]
    usual.sort(key=lambda wait: -wait.blocked_s)
    copies.sort(key=lambda copy: -copy.mb)
    return Habits(tuple(usual), tuple(copies))


def habit_values(recording: Recording, known: Habits) -> Measured:
    """Cost per step of these call sites for each rank, and the precision it computes with."""
    values = Measured()
    for rank, _, looks in _looked_at(recording):
        values[SYNC_LOOKS, rank] = float(looks)
        mine = [wait for wait in known.waits if wait.rank == rank]
        values[SYNC_CALLS, rank] = sum(wait.calls for wait in mine)
        values[SYNC_BLOCKED_S, rank] = sum(wait.blocked_s for wait in mine)
        moved = [copy for copy in known.copies if copy.rank == rank]
        in_line = [copy for copy in moved if not copy.aside]
        pageable = [copy for copy in in_line if not copy.pinned]
        blocking = [copy for copy in in_line if copy.pinned and not copy.non_blocking]
        values[COPY_MB, rank] = sum(copy.mb for copy in moved)
        values[COPY_PAGEABLE_MB, rank] = sum(copy.mb for copy in pageable)
        values[COPY_PAGEABLE_S, rank] = sum(copy.least_s for copy in pageable)
        values[COPY_BLOCKING_MB, rank] = sum(copy.mb for copy in blocking)
        values[COPY_BLOCKING_S, rank] = sum(copy.blocked_s for copy in blocking)
    on_gpu = trains_on_gpu(recording)
    if on_gpu and not values.has(SYNC_LOOKS):
        values.missing[SYNC_LOOKS, JOB] = values.missing[COPY_MB, JOB] = _UNSEEN + _why_unseen(recording)
    for rank, process in process_by_rank(recording.processes).items():
        told = recording.facts.get(process.pid, {})
        values.update({(measure, rank): value for measure, value in _computing(told).items()})
    if on_gpu and not values.has(PRECISION_HALF):
        values.missing[PRECISION_HALF, JOB] = "the precision that the model computes in was not observed"
    if not values.has(LAYOUT_CHANNELS_FIRST) and _is_compiled(recording):
        values.missing[LAYOUT_CHANNELS_FIRST, JOB] = "the compiler chooses the layout of compiled convolutions"
    return values


def _why_unseen(recording: Recording) -> str:
    told = (facts.get("syncs", SyncFacts()) for facts in recording.facts.values())
    words = (_WHY_UNSEEN.get(syncs.get("unseen", "")) for syncs in told)
    return next(filter(None, words), _TOO_SHORT)


def trains_on_gpu(recording: Recording) -> bool:
    """True if the job uses a GPU; other jobs need no explanation of missing GPU measures."""
    return any(told.get("cuda") for told in recording.facts.values())


def _looked_at(recording: Recording) -> Iterator[tuple[int, RankFacts, int]]:
    """Yields (rank, its facts, number of inspected steps)."""
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        told = recording.facts.get(process.pid, {})
        looks = told.get("syncs", SyncFacts()).get("looks", 0)
        if looks > 0:
            yield rank, told, looks


def _often(site: CopySite, looks: int) -> bool:
    return site.get("looks", 0) >= _STEPS_SHARE_MIN * looks


def _wait(rank: int, site: WaitSite, looks: int) -> Wait:
    return Wait(
        rank=rank,
        call=site.get("call", ""),
        file=site.get("file", ""),
        line=site.get("line", 0),
        function=site.get("function", ""),
        through=site.get("through", ""),
        phase=site.get("phase", ""),
        calls=site.get("count", 0) / looks,
        steps_share=site.get("looks", 0) / looks,
        blocked_s=site.get("blocked_ns", 0) / 1e9 / looks,
    )


def _copy(rank: int, site: CopySite, looks: int) -> HostCopy:
    calls = site.get("count", 0) / looks
    return HostCopy(
        rank=rank,
        call=site.get("call", ""),
        file=site.get("file", ""),
        line=site.get("line", 0),
        mb=site.get("bytes", 0) / 1e6 / looks,
        pinned=site.get("pinned", False),
        non_blocking=site.get("non_blocking", False),
        aside=site.get("aside", False),
        phase=site.get("phase", ""),
        blocked_s=site.get("blocked_ns", 0) / 1e9 / looks,
        least_s=calls * site.get("least_ns", 0) / 1e9,
    )


def _computing(told: RankFacts) -> dict[RankMeasure, float]:
    """Precision, layout and replicas of one rank, as far as known."""
    found: dict[RankMeasure, float] = {}
    cuda = told.get("cuda")
    half = _half(told)
    if half is not None:
        found[PRECISION_HALF] = float(half)
    if cuda is not None and cuda.get("capability"):
        major, minor = [*cuda["capability"], 0][:2]
        found[PRECISION_CAPABILITY] = float(major) + float(minor) / 10
        switch = cuda.get("tf32_cudnn") if _mostly_convolves(told) else cuda.get("tf32_matmul")
        if switch is not None:
            found[PRECISION_TF32] = float(bool(switch) and major >= 8)
    conv = told.get("conv")
    if conv is not None and conv.get("input_layout"):
        layouts = {conv["input_layout"], conv.get("weight_layout")}
        if "channels_last" in layouts:
            found[LAYOUT_CHANNELS_FIRST] = 0.0
        elif "channels_first" in layouts:
            found[LAYOUT_CHANNELS_FIRST] = 1.0
    elif convolutions_of(told).get("channels_last"):
        found[LAYOUT_CHANNELS_FIRST] = 0.0
    if parallel := told.get("data_parallel"):
        found[PARALLEL_DEVICES] = float(max(made.get("devices", 0) for made in parallel))
    return found


def _half(told: RankFacts) -> bool | None:
    """True if the model computes in half precision, by autocast or by its weights; None if unknown.

    A compiled model shows no layers. There the answer comes from entering autocast, or from never entering it, else from its weights.
    """
    layers = [layer for layer in (told.get("conv"), told.get("linear")) if layer is not None]
    for layer in layers:
        if layer.get("autocast") in _HALF or layer.get("weight") in _HALF:
            return True
    entered = told.get("autocast")
    asked = any(layer.get("after_autocast") for layer in layers)
    if entered is not None and entered.get("enabled") and not asked:
        return entered.get("dtype") in _HALF
    weights = convolutions_of(told)
    if any(dtype in _HALF for dtype in weights.get("dtypes", ())):
        return True
    return False if layers or (weights.get("weights") and entered is not None) else None


def _mostly_convolves(told: RankFacts) -> bool:
    layers = told.get("model", ModelFacts()).get("layers")
    if layers is None:
        return bool(told.get("conv")) or convolutions_of(told).get("weights", 0) >= _CONVOLUTIONS_MIN
    return sum(n for kind, n in layers.items() if kind.startswith("Conv")) >= _CONVOLUTIONS_MIN


def _is_compiled(recording: Recording) -> bool:
    return any(
        convolutions_of(told).get("weights") and told.get("compiled_frames") for told in recording.facts.values()
    )
