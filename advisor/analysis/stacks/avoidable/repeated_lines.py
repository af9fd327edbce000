"""Finds lines of the user's code that compute the same anew in every step, or in every round of a loop within a forward pass, and measures
them by stack samples.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Set

from rn50_advisor.advisor.analysis.host.node_window import ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.forward_operations import forward_values
from rn50_advisor.advisor.analysis.stacks.hot_lines import place
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, profiled_values, samples_by_rank, step_rows
from rn50_advisor.advisor.analysis.stacks.source.repeated_source import (
    called_in_loop,
    repeated_in_loop,
    repeated_work,
)
from rn50_advisor.advisor.analysis.stacks.source.same_values import Entered, Entry
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    FETCH,
    CallPaths,
    CodeLine,
    Place,
    SeenStack,
    inner,
    line_of,
    starts_backward,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import PARAMETRIZED, HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_INVARIANT_S, STEP_REPEATED_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

# Frames of torch between a line that calls a model and the model's forward. These pass on its arguments.
_PASS_ON = ("/torch/nn/modules/module.py", "/torch/nn/parallel/", "/torch/utils/_contextlib.py")
# What computes the weight of a layer from others: each time that it is called.
_WEIGHTS = ("/torch/nn/utils/parametrize.py", "/torch/nn/utils/weight_norm.py", "/torch/nn/utils/spectral_norm.py")
_LAYERS, _OPTIMIZERS = "/torch/nn/modules/", "/torch/optim/"
_Backwards = frozenset[tuple[Place, Set[int]]]


def repeated_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile. On a GPU, at most the time in which the GPU had nothing queued."""
    return profiled_values(
        recording, steady, values, STEP_REPEATED_S, samples_by_rank(_repeated(recording)), by_source=True
    )


def repeated_lines(recording: Recording) -> tuple[HotLine, ...]:
    """These lines over all ranks, the longest first."""
    return longest(recording, ((line, leaf, count) for _, line, leaf, count in _repeated(recording)))


def invariant_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of what each round of a loop computes anew, for each rank on a CPU with a profile and the source of its model."""
    return forward_values(recording, steady, values, STEP_INVARIANT_S, samples_by_rank(_invariant(recording)))


def invariant_lines(recording: Recording) -> tuple[HotLine, ...]:
    """These lines over all ranks, the longest first. `leaf`: the layer of torch in which samples found them, or PARAMETRIZED where its
    weights are what is computed anew; empty for tensor expressions.
    """
    return longest(recording, ((line, leaf, count) for _, line, leaf, count in _invariant(recording)))


def _invariant(recording: Recording) -> Iterator[tuple[int, CodeLine, str, int]]:
    on_gpu = ranks_on_gpus(recording)
    for rank, paths, row, count in step_rows(recording):
        frames = row["frames"]
        # without a backward pass in the profile nobody knows which loop trains
        if rank in on_gpu or not paths.backwards or any(_is_elsewhere(frame) for frame in frames):
            continue
        entries, backwards = users_entries(row), frozenset(paths.backwards.items())
        if any(frame["file"].endswith(_WEIGHTS) for frame in frames):
            user = row["user"]
            if called_in_loop(recording.sources, entries, paths.backwards):
                yield rank, line_of(user), PARAMETRIZED, count
        elif (found := _in_loop(recording.sources, entries, backwards)) is not None:
            below = itertools.takewhile(lambda frame: not is_user_file(frame["file"]), frames)
            layer = next((place(frame) for frame in below if _LAYERS in frame["file"]), "")
            yield rank, (found.file, found.line, found.function), layer, count


def _is_elsewhere(frame: StackFrame) -> bool:
    """True in a loader, a backward pass or an update."""
    return starts_backward(frame) or FETCH in frame["file"] or _OPTIMIZERS in frame["file"]


# A live job is analysed each second, with the same stacks.
@functools.lru_cache(maxsize=4096)
def _in_loop(sources: tuple[Source, ...], entries: tuple[Entry, ...], backwards: _Backwards) -> Entry | None:
    return repeated_in_loop(sources, entries, dict(backwards))


@functools.lru_cache(maxsize=4096)
def _in_step(sources: tuple[Source, ...], entries: tuple[Entry, ...], backwards: _Backwards) -> Entry | None:
    return repeated_work(sources, entries, dict(backwards))


def _repeated(recording: Recording) -> Iterator[tuple[int, CodeLine, str, int]]:
    """Yields (rank, line, innermost function if another one, number of samples that found it awake)."""
    for rank, paths, row, count in step_rows(recording):
        found = _place(row, paths, recording.sources)
        if found is not None:
            leaf = row["frames"][0]
            own = (leaf["file"], leaf["function"]) == (found.file, found.function)
            yield rank, (found.file, found.line, found.function), "" if own else place(leaf), count


def _place(row: SeenStack, paths: CallPaths, sources: tuple[Source, ...]) -> Entry | None:
    return _in_step(sources, users_entries(row), frozenset(paths.backwards.items()))


def users_entries(row: SeenStack) -> tuple[Entry, ...]:
    """The user's functions in a stack, outermost first."""
    entries, between = list[Entry](), list[str]()
    for frame in reversed(inner(row["frames"])):
        if is_user_file(frame["file"]):
            how: Entered = "called"
            if between:
                how = "as a module" if all(any(p in file for p in _PASS_ON) for file in between) else "otherwise"
            entries.append(Entry(frame["file"], frame["line"], frame["function"], how))
            between = []
        else:
            between.append(frame["file"])
    return tuple(entries)
