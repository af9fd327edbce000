"""Reads the steps that the recorder inspected: synchronisations with the GPU, copies to it, precision and memory layout."""

from __future__ import annotations

from collections.abc import Iterator

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.trained_model import convolutions_of
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites, HostCopy, Wait
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
    PRECISION_BF16,
    PRECISION_CAPABILITY,
    PRECISION_HALF,
    PRECISION_TF32,
    SYNC_BLOCKED_S,
    SYNC_CALLS,
    SYNC_LOOKS,
)
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.model_documents import ModelFacts
from rn50_advisor.probes.documents.rank_documents import CopySite, RankFacts, SyncFacts, WaitSite

_STEPS_SHARE_MIN = 0.5  # of the inspected steps; rarer calls are no part of a usual step
_HALF = ("bfloat16", "float16")
_CONVOLUTIONS_MIN = 4  # a vision transformer has one, which cuts images into patches; it computes in matrix products
_NOT_SEARCHED = "calls that wait for the GPU were not searched for: "
_TOO_SHORT = "the run was too short, or the GPU was not in use at its start"
# Reasons by the recorder's code for them.
_REASONS = {
    "dynamo": "torch._dynamo was not loaded, and keeps on its import what it finds in torch.Tensor",
    "compiling": "torch was compiling in each step in which it was tried",
    "failed": "one inspection failed, and no more were made",
}


def usual_call_sites(recording: Recording) -> CallSites:
    """Call sites that wait for the GPU or copy to it in most steps."""
    waits: list[Wait] = []
    copies: list[HostCopy] = []
    for rank, facts, inspected_steps in _inspected_ranks(recording):
        waits += [_wait(rank, site, inspected_steps) for site in facts["syncs"].get("sites", ())]
        copies += [
            _copy(rank, site, inspected_steps) for site in facts.get("copies", ()) if _often(site, inspected_steps)
        ]
    usual = [wait for wait in waits if wait.steps_share >= _STEPS_SHARE_MIN]
    usual.sort(key=lambda wait: -wait.blocked_s)
    copies.sort(key=lambda copy: -copy.mb)
    return CallSites(tuple(usual), tuple(copies))


def call_site_values(recording: Recording, known: CallSites) -> Measured:
    """Cost per step of these call sites for each rank, and the precision it computes with."""
    values = Measured()
    for rank, _, inspected_steps in _inspected_ranks(recording):
        values[SYNC_LOOKS, rank] = float(inspected_steps)
        own = [wait for wait in known.waits if wait.rank == rank]
        values[SYNC_CALLS, rank] = sum(wait.calls for wait in own)
        values[SYNC_BLOCKED_S, rank] = sum(wait.blocked_s for wait in own)
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
        values.missing[SYNC_LOOKS, JOB] = values.missing[COPY_MB, JOB] = _NOT_SEARCHED + _why_not_searched(recording)
    for rank, process in process_by_rank(recording.processes).items():
        facts = recording.facts.get(process.pid, {})
        values.update({(measure, rank): value for measure, value in _computing(facts).items()})
    if on_gpu and not values.has(PRECISION_HALF):
        values.missing[PRECISION_HALF, JOB] = "the precision that the model computes in was not observed"
    if not values.has(LAYOUT_CHANNELS_FIRST) and _is_compiled(recording):
        values.missing[LAYOUT_CHANNELS_FIRST, JOB] = "the compiler chooses the layout of compiled convolutions"
    return values


def _why_not_searched(recording: Recording) -> str:
    inspected = (facts.get("syncs", SyncFacts()) for facts in recording.facts.values())
    words = (_REASONS.get(syncs.get("unseen", "")) for syncs in inspected)
    return next(filter(None, words), _TOO_SHORT)


def trains_on_gpu(recording: Recording) -> bool:
    """True if the job uses a GPU; other jobs need no explanation of missing GPU measures."""
    return any(facts.get("cuda") for facts in recording.facts.values())


def _inspected_ranks(recording: Recording) -> Iterator[tuple[int, RankFacts, int]]:
    """Yields (rank, its facts, number of inspected steps)."""
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        facts = recording.facts.get(process.pid, {})
        inspected_steps = facts.get("syncs", SyncFacts()).get("looks", 0)
        if inspected_steps > 0:
            yield rank, facts, inspected_steps


def _often(site: CopySite, inspected_steps: int) -> bool:
    return site.get("looks", 0) >= _STEPS_SHARE_MIN * inspected_steps


def _wait(rank: int, site: WaitSite, inspected_steps: int) -> Wait:
    return Wait(
        rank=rank,
        call=site.get("call", ""),
        file=site.get("file", ""),
        line=site.get("line", 0),
        function=site.get("function", ""),
        through=site.get("through", ""),
        phase=site.get("phase", ""),
        calls=site.get("count", 0) / inspected_steps,
        steps_share=site.get("looks", 0) / inspected_steps,
        blocked_s=site.get("blocked_ns", 0) / 1e9 / inspected_steps,
    )


def _copy(rank: int, site: CopySite, inspected_steps: int) -> HostCopy:
    calls = site.get("count", 0) / inspected_steps
    return HostCopy(
        rank=rank,
        call=site.get("call", ""),
        file=site.get("file", ""),
        line=site.get("line", 0),
        mb=site.get("bytes", 0) / 1e6 / inspected_steps,
        pinned=site.get("pinned", False),
        non_blocking=site.get("non_blocking", False),
        aside=site.get("aside", False),
        phase=site.get("phase", ""),
        blocked_s=site.get("blocked_ns", 0) / 1e9 / inspected_steps,
        least_s=calls * site.get("least_ns", 0) / 1e9,
    )


def _computing(facts: RankFacts) -> dict[RankMeasure, float]:
    """Precision, layout and replicas of one rank, as far as known."""
    found: dict[RankMeasure, float] = {}
    cuda = facts.get("cuda")
    half = _half(facts)
    if half is not None:
        found[PRECISION_HALF] = float(half)
        found[PRECISION_BF16] = float(half and "bfloat16" in _dtypes(facts))
    if cuda is not None and cuda.get("capability"):
        major, minor = [*cuda["capability"], 0][:2]
        found[PRECISION_CAPABILITY] = float(major) + float(minor) / 10
        switch = cuda.get("tf32_cudnn") if _mostly_convolves(facts) else cuda.get("tf32_matmul")
        if switch is not None:
            found[PRECISION_TF32] = float(bool(switch) and major >= 8)
    conv = facts.get("conv")
    if conv is not None and conv.get("input_layout"):
        layouts = {conv["input_layout"], conv.get("weight_layout")}
        if "channels_last" in layouts:
            found[LAYOUT_CHANNELS_FIRST] = 0.0
        elif "channels_first" in layouts:
            found[LAYOUT_CHANNELS_FIRST] = 1.0
    elif convolutions_of(facts).get("channels_last"):
        found[LAYOUT_CHANNELS_FIRST] = 0.0
    if parallel := facts.get("data_parallel"):
        found[PARALLEL_DEVICES] = float(max(made.get("devices", 0) for made in parallel))
    return found


def _half(facts: RankFacts) -> bool | None:
    """True if the model computes in half precision, by autocast or by its weights; None if unknown.

    A compiled model shows no layers. There the answer comes from entering autocast, or from never entering it, else from its weights.
    """
    layers = [layer for layer in (facts.get("conv"), facts.get("linear")) if layer is not None]
    for layer in layers:
        if layer.get("autocast") in _HALF or layer.get("weight") in _HALF:
            return True
    entered = facts.get("autocast")
    asked = any(layer.get("after_autocast") for layer in layers)
    if entered is not None and entered.get("enabled") and not asked:
        return entered.get("dtype") in _HALF
    weights = convolutions_of(facts)
    if any(dtype in _HALF for dtype in weights.get("dtypes", ())):
        return True
    return False if layers or (weights.get("weights") and entered is not None) else None


def _dtypes(facts: RankFacts) -> set[str | None]:
    """The types that the layers, an entered autocast or the weights of convolutions had."""
    layers = [layer for layer in (facts.get("conv"), facts.get("linear")) if layer is not None]
    found = {dtype for layer in layers for dtype in (layer.get("autocast"), layer.get("weight"))}
    entered = facts.get("autocast")
    if entered is not None and entered.get("enabled") and not found & set(_HALF):
        found.add(entered.get("dtype"))
    return found | set(convolutions_of(facts).get("dtypes", ()))


def _mostly_convolves(facts: RankFacts) -> bool:
    layers = facts.get("model", ModelFacts()).get("layers")
    if layers is None:
        return bool(facts.get("conv")) or convolutions_of(facts).get("weights", 0) >= _CONVOLUTIONS_MIN
    return sum(n for kind, n in layers.items() if kind.startswith("Conv")) >= _CONVOLUTIONS_MIN


def _is_compiled(recording: Recording) -> bool:
    return any(
        convolutions_of(facts).get("weights") and facts.get("compiled_frames") for facts in recording.facts.values()
    )
