"""Finds compute of the training thread between the batch and the backward pass, in the user's own lines outside the model.

Marks cannot separate it from the forward pass, but a profile can. It covers each function on the way to the model, from the fetching loop
inwards. Lines before the first one that calls the model prepare its batch, which loader workers could do ahead. Of the lines after it, up
to the backward pass, those that compute in libraries other than torch measure the output, unless the backward pass uses what they assign:
then they belong to the loss (a line that computes with tensors may do so, too, and is none of these).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Any, Literal

from rn50_advisor.advisor.analysis.host.node_window import ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.after_backward import Line
from rn50_advisor.advisor.analysis.stacks.after_update import evaluates, evaluation_lines
from rn50_advisor.advisor.analysis.stacks.hot_lines import place, writes_output
from rn50_advisor.advisor.analysis.stacks.source.loop_source import heads_loop, is_trained_on
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    FETCH,
    LINE_SAMPLES_MIN,
    TORCH,
    CallPaths,
    CodeLine,
    Place,
    SeenStack,
    call_paths,
    inner,
    line_of,
    lines_to,
    place_of,
    profiles_by_rank,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_HOST_PACED_S
from rn50_advisor.advisor.model.measures.measure import RankMeasure
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_MEASURING_S, STEP_PREPARING_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.documents.event_documents import StackProfile
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

Kind = Literal["preparing", "measuring", "loss"]

_MODULE, _CALLS = "/torch/nn/modules/module.py", ("_call_impl", "_wrapped_call_impl")
# Modules that prepare images or audio and are not part of a model.
_TRANSFORMS = ("/torchvision/transforms/", "/torchaudio/transforms/", "/kornia/augmentation/")
# A line that prepares the batch calls none of these and no module of a model. Progress bars wrap the loader.
_OF_THE_STEP = (FETCH, "/torch/autograd/", "/torch/optim/", "/torch/distributed/", "/tqdm/", "/rich/")
_MODULES = "/torch/nn/modules/"
# Parts of torch that work on whole tensors for the line that calls them.
WHOLE_TENSORS = ("/torch/nn/", "/torch/autograd/", "/torch/optim/", "/torch/distributed/", "/torch/serialization.py")
# Waits for the GPU and copies to it are reported elsewhere.
_FOR_THE_GPU = re.compile(r"\.(?:to|cuda|cpu|item|tolist|numpy|copy_|synchronize)\(")
# Frames in which a thread computes nothing; a profile may not show which thread was asleep.
_ASLEEP = (
    "/threading.py",
    "/queue.py",
    "/selectors.py",
    "/socket.py",
    "/subprocess.py",
    "/multiprocessing/connection.py",
)


def own_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of preparing and measuring, for each rank with a profile.

    Their sum is at most the forward pass; on a GPU, at most the time in which the GPU had nothing queued. Where no loader of torch feeds
    a rank, preparing is what the loop iterates over, and how long it measures is not known.
    """
    found = Measured()
    on_gpu = ranks_on_gpus(recording)
    for rank, steps in steady.items():
        shares = _shares(recording, rank, on_gpu=rank in on_gpu, fed=steps.fed)
        most_s = values.get((GPU_HOST_PACED_S, rank)) if rank in on_gpu else steps.per_step("forward")
        if shares is None or most_s is None:
            continue
        if steps.fed or shares["preparing"]:
            found[STEP_PREPARING_S, rank] = min(most_s, shares["preparing"] * steps.per_step_s)
        if steps.fed:
            left_s = most_s - found[STEP_PREPARING_S, rank]
            found[STEP_MEASURING_S, rank] = min(left_s, shares["measuring"] * steps.per_step_s)
    return found


def own_lines(recording: Recording, kind: Kind, fed: Set[int]) -> tuple[HotLine, ...]:
    """The lines of this kind over all ranks, the longest first. `fed`: ranks with steps that a loader of torch feeds."""
    on_gpu = ranks_on_gpus(recording)
    return longest(
        recording,
        (
            (
                line_of(frame),
                "" if row["frames"][0] == frame else place(row["frames"][0]),
                count,
            )
            for rank, profile in profiles_by_rank(recording)
            for what, frame, row, count in _own(profile, recording.sources, on_gpu=rank in on_gpu, fed=rank in fed)
            if what == kind
        ),
    )


def _shares(recording: Recording, rank: int, *, on_gpu: bool, fed: bool) -> Mapping[Kind, float] | None:
    """Shares of a rank's stack samples by kind of line; None if no profile can show them."""
    profiles = [profile for of, profile in profiles_by_rank(recording) if of == rank]
    samples = sum(profile["looks"] for profile in profiles)
    if samples < LINE_SAMPLES_MIN:
        return None
    seen = Counter[Kind]()
    for profile in profiles:
        for kind, _, _, count in _own(profile, recording.sources, on_gpu=on_gpu, fed=fed):
            seen[kind] += count
    return {"preparing": seen["preparing"] / samples, "measuring": seen["measuring"] / samples}


def _own(
    profile: StackProfile, sources: Sequence[Source], *, on_gpu: bool, fed: bool
) -> Iterator[tuple[Kind, StackFrame, SeenStack, int]]:
    """Yields (kind of work, the loop's own line, the stack, number of samples that found it awake there)."""
    rows = user_rows(profile)
    path = ModelPath(rows, sources, fed=fed)
    for row in rows:
        found, count = path.off(row), row.get("awake", row["count"])
        if found is not None and count and not waits(row, on_gpu=on_gpu):
            yield (*found, row, count)


def profiled_values(
    recording: Recording,
    steady: Mapping[int, RankSteps],
    values: Measured,
    measure: RankMeasure,
    seen: Mapping[int, int],
    *,
    by_source: bool = False,
) -> Measured:
    """Seconds per step of the work that so many samples of each rank's profile found; on a GPU, at most the time in which it had nothing
    queued. `by_source`: without the source of the job's code such work cannot be found.
    """
    found, on_gpu = Measured(), ranks_on_gpus(recording)
    samples = Counter[int]()
    for rank, profile in profiles_by_rank(recording):
        samples[rank] += profile["looks"]
    for rank, steps in steady.items():
        most_s = values.get((GPU_HOST_PACED_S, rank)) if rank in on_gpu else steps.per_step_s
        if samples[rank] < LINE_SAMPLES_MIN:
            found.missing[measure, rank] = "no profile of the training thread was taken"
        elif by_source and not recording.sources:
            found.missing[measure, rank] = "no source of the job's code was kept"
        elif most_s is None:
            found.missing[measure, rank] = "how long the GPU had nothing queued is not known"
        else:
            found[measure, rank] = min(most_s, seen.get(rank, 0) / samples[rank] * steps.per_step_s)
    return found


def samples_by_rank(found: Iterable[tuple[Any, ...]]) -> Counter[int]:
    """The sum of stack samples by rank. `found`: rows that begin with the rank and end with their number."""
    seen = Counter[int]()
    for rank, *_, count in found:
        seen[rank] += count
    return seen


def step_rows(recording: Recording) -> Iterator[tuple[int, CallPaths, SeenStack, int]]:
    """Yields (rank, its call paths, stack, number of samples that found it awake) for the steps' work in all profiles, without output."""
    on_gpu, evaluations = ranks_on_gpus(recording), evaluation_lines(recording)
    for rank, profile in profiles_by_rank(recording):
        rows = user_rows(profile)
        paths = call_paths(rows)
        for row, count in working_rows(rows, evaluations, on_gpu=rank in on_gpu):
            if not writes_output(row):
                yield rank, paths, row, count


def longest(recording: Recording, found: Iterable[tuple[CodeLine, str, int]]) -> tuple[HotLine, ...]:
    """The five longest lines of all ranks. `found`: (file, line, function), the innermost function if it is another one, samples."""
    samples = sum(profile["looks"] for _, profile in profiles_by_rank(recording))
    lines, leaves = Counter[CodeLine](), dict[CodeLine, Counter[str]]()
    for line, leaf, count in found:
        lines[line] += count
        leaves.setdefault(line, Counter())[leaf] += count
    return tuple(
        HotLine(*line, leaves[line].most_common(1)[0][0], n, n / samples, io=False) for line, n in lines.most_common(5)
    )


def working_rows(rows: Iterable[SeenStack], evaluations: Set[Line], *, on_gpu: bool) -> Iterator[tuple[SeenStack, int]]:
    """Yields (stack, samples that found it awake) for work of the steps: no waits, items of a data set or evaluations at these lines."""
    for row in rows:
        count = row.get("awake", row["count"])
        aside = evaluates(row, evaluations) or any(FETCH in frame["file"] for frame in row["frames"])
        if count and not aside and not waits(row, on_gpu=on_gpu):
            yield row, count


def waits(row: SeenStack, *, on_gpu: bool) -> bool:
    """True in calls that wait rather than compute, also if the profile cannot show that."""
    for_gpu = on_gpu and _FOR_THE_GPU.search(row["user"].get("text", "")) is not None
    return for_gpu or row["frames"][0]["file"].endswith(_ASLEEP)


class ModelPath:
    """Functions on the way to the model, and their lines that lead there."""

    def __init__(self, rows: list[SeenStack], sources: Sequence[Source], *, fed: bool = True) -> None:
        self._sources, self._fed = sources, fed
        self._paths = call_paths(rows)
        self._models = lines_to([row for row in rows if not _transforms(row)], calls_model)
        # functions of an evaluation, which also fetches and calls the model
        self._others = {at for at in self._models if at in self._paths.fetches and at not in self._paths.backwards}

    def off(self, row: SeenStack) -> tuple[Kind, StackFrame] | None:
        """The kind of work at the point where a stack leaves the way to the model, and the user's line there; None if there is none."""
        frames = inner(row["frames"])
        if any(place_of(frame) in self._others for frame in frames):
            return None
        for n in reversed(range(len(frames))):
            at, line = place_of(frames[n]), frames[n]["line"]
            models = self._models.get(at)
            if not models:
                return None
            if line not in models:
                below = [frame["file"] for frame in frames[:n]]
                kind = "preparing" if line < min(models) else self._after_model(at, line)
                if kind == "preparing" and not self._fed and not heads_loop(self._sources, at[0], line):
                    return None
                matches = (
                    self._makes_ready(row, at, line, below)
                    if kind == "preparing"
                    else (kind == "loss" or self._measures(at, line, below))
                )
                own = next((f for f in reversed(frames[: n + 1]) if is_user_file(f["file"])), None)
                return (kind, own) if matches and own is not None else None
        return None

    def _makes_ready(self, row: SeenStack, at: Place, line: int, below: list[str]) -> bool:
        step = any(part in file for file in below for part in _OF_THE_STEP)
        step |= any(_MODULES in file for file in below) and not _transforms(row)
        return not step and line >= min(self._paths.fetches.get(at, ()), default=0)

    def _after_model(self, at: Place, line: int) -> Kind:
        backwards = self._paths.backwards.get(at, frozenset())
        used = line < max(backwards, default=0) and is_trained_on(self._sources, at[0], line, backwards)
        return "loss" if used else "measuring"

    def _measures(self, at: Place, line: int, below: list[str]) -> bool:
        elsewhere = below and not any(TORCH in file for file in below) and not is_user_file(below[0])
        return bool(elsewhere) and line < max(self._paths.backwards.get(at, ()), default=line + 1)


def _transforms(row: SeenStack) -> bool:
    return any(part in frame["file"] for frame in row["frames"] for part in _TRANSFORMS)


def calls_model(frame: StackFrame) -> bool:
    return frame["file"].endswith(_MODULE) and frame["function"].rpartition(".")[2] in _CALLS
