"""What the recorder saw of a rank's ways in the steps it looked at: waits for the GPU, copies to it, precision and layout."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.steps.trained_model import convolutions_of
from rn50_advisor.advisor.model.gpu.gpu_pace import Habits, HostCopy, Wait
from rn50_advisor.advisor.model.recording import Recording

Values = dict[tuple[str, str], float]

_MOST = 0.5  # of the steps looked at: what happens more rarely is no habit of each step
_HALF = ("bfloat16", "float16")
_CONVOLUTIONS = 4  # a transformer cuts its pictures into patches by one, and computes in matrix products
_UNSEEN = "calls that wait for the GPU were not looked for: "
_TOO_SHORT = "the run was too short, or the GPU not in use when it began"
# By the recorder's word for it.
_WHY_UNSEEN = {
    "dynamo": "torch._dynamo was not loaded, and keeps on its import what it finds in torch.Tensor",
    "compiling": "torch compiled in each step in which it was tried",
    "failed": "a look went wrong, and none was taken after it",
}


def habits(recording: Recording) -> Habits:
    """Places that wait or copy in most steps."""
    waits: list[Wait] = []
    copies: list[HostCopy] = []
    for rank, told, looks in _looked_at(recording):
        waits += [_wait(rank, entry, looks) for entry in _entries(told["syncs"].get("sites"))]
        copies += [_copy(rank, entry, looks) for entry in _entries(told.get("copies")) if _often(entry, looks)]
    usual = [wait for wait in waits if wait.steps_share >= _MOST]
    usual.sort(key=lambda wait: -wait.blocked_s)
    copies.sort(key=lambda copy: -copy.mb)
    return Habits(tuple(usual), tuple(copies))


def habit_values(recording: Recording, known: Habits, missing: dict[str, str]) -> Values:
    """What these places come to in a step of each rank, and with what it computes."""
    values: Values = {}
    for rank, _, looks in _looked_at(recording):
        scope = f"rank:{rank}"
        values["sync.looks", scope] = float(looks)
        mine = [wait for wait in known.waits if wait.rank == rank]
        values["sync.calls", scope] = sum(wait.calls for wait in mine)
        values["sync.blocked_s", scope] = sum(wait.blocked_s for wait in mine)
        moved = [copy for copy in known.copies if copy.rank == rank]
        in_line = [copy for copy in moved if not copy.aside]
        pageable = [copy for copy in in_line if not copy.pinned]
        blocking = [copy for copy in in_line if copy.pinned and not copy.non_blocking]
        values["copy.mb", scope] = sum(copy.mb for copy in moved)
        values["copy.pageable_mb", scope] = sum(copy.mb for copy in pageable)
        values["copy.pageable_s", scope] = sum(copy.least_s for copy in pageable)
        values["copy.blocking_mb", scope] = sum(copy.mb for copy in blocking)
        values["copy.blocking_s", scope] = sum(copy.blocked_s for copy in blocking)
    on_gpu = trains_on_gpu(recording)
    if on_gpu and not any(name == "sync.looks" for name, _ in values):
        missing["sync.looks"] = missing["copy.mb"] = _UNSEEN + _why_unseen(recording)
    for rank, process in process_by_rank(recording.processes).items():
        told = recording.facts.get(process.pid, {})
        values.update({(name, f"rank:{rank}"): value for name, value in _computing(told).items()})
    if on_gpu and not any(name == "precision.half" for name, _ in values):
        missing["precision.half"] = "with what precision the model computes was not seen"
    if not any(name == "layout.channels_first" for name, _ in values) and _is_compiled(recording):
        missing["layout.channels_first"] = "of convolutions that are compiled the compiler chooses the layout"
    return values


def _why_unseen(recording: Recording) -> str:
    told = (facts.get("syncs") for facts in recording.facts.values())
    words = (_WHY_UNSEEN.get(str(syncs.get("unseen"))) for syncs in told if isinstance(syncs, Mapping))
    return next(filter(None, words), _TOO_SHORT)


def trains_on_gpu(recording: Recording) -> bool:
    """Of other jobs nobody needs to be told why this or that of a GPU is not known."""
    return any(told.get("cuda") for told in recording.facts.values())


def _looked_at(recording: Recording) -> Iterator[tuple[int, Mapping[str, Any], int]]:
    """(rank, its facts, steps looked at)."""
    for rank, process in sorted(process_by_rank(recording.processes).items()):
        told = recording.facts.get(process.pid, {})
        syncs = told.get("syncs")
        looks = syncs.get("looks") if isinstance(syncs, Mapping) else None
        if isinstance(looks, int) and looks > 0:
            yield rank, told, looks


def _entries(told: Any) -> list[Mapping[str, Any]]:
    return [entry for entry in told if isinstance(entry, Mapping)] if isinstance(told, (list, tuple)) else []


def _often(entry: Mapping[str, Any], looks: int) -> bool:
    return float(entry.get("looks", 0)) >= _MOST * looks


def _wait(rank: int, entry: Mapping[str, Any], looks: int) -> Wait:
    return Wait(
        rank=rank,
        call=str(entry.get("call", "")),
        file=str(entry.get("file", "")),
        line=int(entry.get("line", 0)),
        function=str(entry.get("function", "")),
        through=str(entry.get("through", "")),
        phase=str(entry.get("phase", "")),
        calls=float(entry.get("count", 0)) / looks,
        steps_share=float(entry.get("looks", 0)) / looks,
        blocked_s=float(entry.get("blocked_ns", 0)) / 1e9 / looks,
    )


def _copy(rank: int, entry: Mapping[str, Any], looks: int) -> HostCopy:
    calls = float(entry.get("count", 0)) / looks
    return HostCopy(
        rank=rank,
        call=str(entry.get("call", "")),
        file=str(entry.get("file", "")),
        line=int(entry.get("line", 0)),
        mb=float(entry.get("bytes", 0)) / 1e6 / looks,
        pinned=bool(entry.get("pinned")),
        non_blocking=bool(entry.get("non_blocking")),
        aside=bool(entry.get("aside")),
        phase=str(entry.get("phase", "")),
        blocked_s=float(entry.get("blocked_ns", 0)) / 1e9 / looks,
        least_s=calls * float(entry.get("least_ns", 0)) / 1e9,
    )


def _computing(told: Mapping[str, Any]) -> dict[str, float]:
    """Precision, layout and replicas of one rank, as far as they were seen."""
    found: dict[str, float] = {}
    cuda = told.get("cuda")
    half = _half(told)
    if half is not None:
        found["precision.half"] = float(half)
    if isinstance(cuda, Mapping) and cuda.get("capability"):
        major, minor = [*cuda["capability"], 0][:2]
        found["precision.capability"] = float(major) + float(minor) / 10
        switch = cuda.get("tf32_cudnn" if _mostly_convolves(told) else "tf32_matmul")
        if switch is not None:
            found["precision.tf32"] = float(bool(switch) and major >= 8)
    conv = told.get("conv")
    if isinstance(conv, Mapping) and conv.get("input_layout"):
        layouts = {conv["input_layout"], conv.get("weight_layout")}
        if "channels_last" in layouts:
            found["layout.channels_first"] = 0.0
        elif "channels_first" in layouts:
            found["layout.channels_first"] = 1.0
    elif convolutions_of(told).get("channels_last"):
        found["layout.channels_first"] = 0.0
    parallel = _entries(told.get("data_parallel"))
    if parallel:
        found["parallel.devices"] = float(max(int(made.get("devices", 0)) for made in parallel))
    return found


def _half(told: Mapping[str, Any]) -> bool | None:
    """None: not seen. Whether autocast is around them the layers tell that ran after it was entered.

    Of a compiled model there are none: what autocast does to it is seen where it is entered, or that it never is; else its weights tell.
    """
    layers = [layer for name in ("conv", "linear") if isinstance(layer := told.get(name), Mapping)]
    for layer in layers:
        if layer.get("autocast") in _HALF or layer.get("weight") in _HALF:
            return True
    entered = told.get("autocast")
    asked = any(layer.get("after_autocast") for layer in layers)
    if isinstance(entered, Mapping) and entered.get("enabled") and not asked:
        return entered.get("dtype") in _HALF
    weights = convolutions_of(told)
    if any(dtype in _HALF for dtype in weights.get("dtypes") or ()):
        return True
    return False if layers or (weights.get("weights") and isinstance(entered, Mapping)) else None


def _mostly_convolves(told: Mapping[str, Any]) -> bool:
    model = told.get("model")
    layers = model.get("layers") if isinstance(model, Mapping) else None
    if not isinstance(layers, Mapping):
        return bool(told.get("conv")) or (convolutions_of(told).get("weights") or 0) >= _CONVOLUTIONS
    return sum(int(n) for kind, n in layers.items() if str(kind).startswith("Conv")) >= _CONVOLUTIONS


def _is_compiled(recording: Recording) -> bool:
    return any(
        convolutions_of(told).get("weights") and told.get("compiled_frames") for told in recording.facts.values()
    )
