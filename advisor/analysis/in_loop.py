"""What the training thread makes ready between the batch and the model, in lines of the user's: loader workers could do it ahead.

The marks cannot tell it from the forward pass. A profile can: of each function on the way to the model, from the loop that fetches inwards,
the lines before the first that calls the model. What stands in one line with that call, or after it, is the model's or the loss's.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from advisor.analysis.host import process_by_rank
from advisor.analysis.moments import place
from advisor.analysis.profile import FETCH, Frame, Place, Ways, inner, lines_to, place_of, told_rows, ways_to
from advisor.analysis.steady import RankSteps
from advisor.core.analysis import HotLine
from advisor.core.recording import Recording
from probes.host.stacks import is_user_file

Values = dict[tuple[str, str], float]
Row = Mapping[str, Any]

_MODULE, _CALLS = "/torch/nn/modules/module.py", ("_call_impl", "_wrapped_call_impl")
# Modules that make pictures or sounds ready, and are no part of a model.
_TRANSFORMS = ("/torchvision/transforms/", "/torchaudio/transforms/", "/kornia/augmentation/")
# Below a line that makes something ready stands none of these, nor a module of a model.
_OF_THE_STEP = (FETCH, "/torch/autograd/", "/torch/optim/", "/torch/distributed/")
_MODULES = "/torch/nn/modules/"
# What waits for the GPU or copies to it is told elsewhere.
_FOR_THE_GPU = re.compile(r"\.(?:to|cuda|cpu|item|tolist|numpy|copy_|synchronize)\(")
_LOOKS_MIN = 100  # of a profile: of fewer, a twentieth is too few to tell


def preparing_values(recording: Recording, steady: Mapping[int, RankSteps], values: Values) -> Values:
    """Seconds of a step that a rank computes so, where a profile was taken.

    No more than its forward pass takes; of a rank on a GPU, no more than that had nothing queued.
    """
    found: Values = {}
    on_gpu = _on_gpu(recording)
    for rank, steps in steady.items():
        share, scope = _share(recording, rank), f"rank:{rank}"
        most_s = values.get(("gpu.host_paced_s", scope)) if rank in on_gpu else steps.per_step("forward")
        if steps.fed and share is not None and most_s is not None:
            found["step.preparing_s", scope] = min(most_s, share * steps.per_step_s)
    return found


def preparing_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The lines of loops that make batches ready, of all ranks, the longest first."""
    lines, looks = Counter[tuple[str, int, str]](), 0
    leaves: dict[tuple[str, int, str], Counter[str]] = {}
    on_gpu = _on_gpu(recording)
    for rank, profile in _profiles(recording):
        looks += int(profile["looks"])
        for frame, row, count in _made_ready(profile, on_gpu=rank in on_gpu):
            key = (str(frame["file"]), int(frame["line"]), str(frame["function"]))
            lines[key] += count
            leaf = "" if row["frames"][0] == frame else place(row["frames"][0])
            leaves.setdefault(key, Counter())[leaf] += count
    return tuple(
        HotLine(*key, leaves[key].most_common(1)[0][0], n, n / looks, io=False) for key, n in lines.most_common(5)
    )


def _share(recording: Recording, rank: int) -> float | None:
    """Of the looks at a rank those that found it so; None where no profile can tell."""
    told, on_gpu = [profile for of, profile in _profiles(recording) if of == rank], rank in _on_gpu(recording)
    looks = sum(int(profile["looks"]) for profile in told)
    if looks < _LOOKS_MIN:
        return None
    return sum(count for profile in told for _, _, count in _made_ready(profile, on_gpu=on_gpu)) / looks


def _on_gpu(recording: Recording) -> set[int]:
    ranks = process_by_rank(recording.processes)
    return {rank for rank, process in ranks.items() if recording.facts.get(process.pid, {}).get("cuda")}


def _profiles(recording: Recording) -> Iterator[tuple[int, Row]]:
    for event in recording.events:
        if event.kind == "profile" and event.rank is not None:
            yield event.rank, event.data


def _made_ready(profile: Row, *, on_gpu: bool) -> Iterator[tuple[Frame, Row, int]]:
    """(the loop's own line, the stack, how many looks found it awake there)"""
    rows = told_rows(profile)
    ways, models = ways_to(rows), lines_to([row for row in rows if not _transforms(row)], _calls_model)
    # an evaluation fetches and calls the model as well
    others = {at for at in models if at in ways.fetches and at not in ways.backwards}
    for row in rows:
        frame = _line_before_model(row, ways, models, others)
        count = int(row.get("awake", row["count"]))
        waits = on_gpu and _FOR_THE_GPU.search(str(row["user"].get("text", "")))
        if frame is not None and count and not waits:
            yield frame, row, count


def _line_before_model(
    row: Row, ways: Ways, models: Mapping[Place, frozenset[int]], others: set[Place]
) -> Frame | None:
    frames = inner(row["frames"])
    if any(place_of(frame) in others for frame in frames):
        return None
    for n in reversed(range(len(frames))):
        at, line = place_of(frames[n]), int(frames[n]["line"])
        model = min(models.get(at, ()), default=0)
        if line < model:
            below = [str(frame["file"]) for frame in frames[:n]]
            fetched = min(ways.fetches.get(at, ()), default=0)
            step = any(part in file for file in below for part in _OF_THE_STEP)
            step |= any(_MODULES in file for file in below) and not _transforms(row)
            own = (frame for frame in reversed(frames[: n + 1]) if is_user_file(str(frame["file"])))
            return None if step or line < fetched else next(own, None)
        if line not in models.get(at, ()):
            return None
    return None


def _transforms(row: Row) -> bool:
    return any(part in str(frame["file"]) for frame in row["frames"] for part in _TRANSFORMS)


def _calls_model(frame: Frame) -> bool:
    return str(frame["file"]).endswith(_MODULE) and str(frame["function"]).rpartition(".")[2] in _CALLS
