"""Measures what a step computes a second time, and finds the lines, from stack samples of the training thread: forward passes that
activation checkpointing recomputes, and lines that compute what an earlier line of their function has computed.

On a GPU the backward pass runs in a thread of autograd, so of checkpointing only the lines are found.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import replace

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank, ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.loop_lines import (
    calls_model,
    longest,
    profiled_values,
    samples_by_rank,
    step_rows,
)
from rn50_advisor.advisor.analysis.stacks.source.loop_source import is_trained_on
from rn50_advisor.advisor.analysis.stacks.source.twice_source import Earlier, computed_before
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    LINE_SAMPLES_MIN,
    CodeLine,
    Frames,
    inner,
    line_of,
    place_of,
    profiles_by_rank,
    starts_backward,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine, SecondComputation
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_RECOMPUTING_S, STEP_SECOND_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.documents.model_documents import ModelFacts
from rn50_advisor.probes.documents.rank_documents import RankFacts
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file
from rn50_advisor.probes.rank.layout import LAYER_KINDS_MAX

_CHECKPOINT = "/torch/utils/checkpoint.py"
_AUTOGRAD = "/torch/autograd/"
_LOSSES = "/torch/nn/modules/loss.py"
_RANDOM_LAYERS = ("Drop", "RReLU")  # parts of their names


def recomputing_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds per step in which the backward pass recomputes a forward pass; absent if the samples cannot show it."""
    found, on_gpus = Measured(), ranks_on_gpus(recording)
    for rank, steps in steady.items():
        profiles = [profile for of, profile in profiles_by_rank(recording) if of == rank]
        samples = sum(profile["looks"] for profile in profiles)
        if samples < LINE_SAMPLES_MIN or rank in on_gpus:
            continue
        again = sum(row["count"] for profile in profiles for row in user_rows(profile) if _again(row["frames"]))
        found[STEP_RECOMPUTING_S, rank] = min(steps.per_step("backward"), again / samples * steps.per_step_s)
    return found


def recomputing_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The user's lines whose forward pass is checkpointed, the most frequent first."""
    lines, samples = Counter[CodeLine](), 0
    for _, profile in profiles_by_rank(recording):
        samples += profile["looks"]
        for row in user_rows(profile):
            if (frame := _asks(row["frames"])) is not None:
                lines[line_of(frame)] += row["count"]
    return tuple(HotLine(*key, "", n, n / samples, io=False) for key, n in lines.most_common(5))


def second_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile, without backward passes. On a GPU, at most the time in which it had nothing queued."""
    seen = samples_by_rank((rank, count) for rank, _, _, count in _second(recording))
    return profiled_values(recording, steady, values, STEP_SECOND_S, seen, by_source=True)


def second_computations(recording: Recording) -> tuple[SecondComputation, ...]:
    """These lines over all ranks, the longest first."""
    found = [(line_of(f), earlier, count) for _, f, earlier, count in _second(recording)]
    known = {line: earlier for line, earlier, _ in found}
    lines = longest(recording, ((line, "", count) for line, _, count in found))
    earlier = (known[line.file, line.line, line.function] for line in lines)
    return tuple(SecondComputation(line, one.line, one.recorded) for line, one in zip(lines, earlier, strict=True))


def _second(recording: Recording) -> Iterator[tuple[int, StackFrame, Earlier, int]]:
    """Yields (rank, the user's line that computes again, the one before, number of samples that found it awake)."""
    facts = facts_by_rank(recording)
    for rank, paths, row, count in step_rows(recording):
        frames = inner(row["frames"])
        if any(starts_backward(frame) for frame in frames):
            continue
        layers = facts.get(rank, RankFacts()).get("model", ModelFacts()).get("layers", {})
        draws = any(name in layer for layer in layers for name in _RANDOM_LAYERS)
        in_module = not (draws or any(frame["file"].endswith(_LOSSES) for frame in frames))
        plain = 0 < len(layers) < LAYER_KINDS_MAX and not draws
        for n in reversed(range(len(frames))):
            frame, as_module = frames[n], n > 0 and calls_model(frames[n - 1])
            if not is_user_file(frame["file"]) or (as_module and not in_module):
                continue
            place = frame["file"], frame["line"]
            found = _computed_before(recording.sources, *place, as_module=as_module, plain_layers=plain)
            if found is not None:
                backwards = paths.backwards.get(place_of(frame), frozenset())
                trained = not backwards or is_trained_on(recording.sources, *place, backwards)
                yield rank, frame, replace(found, recorded=found.recorded and trained), count
                break


# A live job is analysed each second, with the same stacks.
@functools.lru_cache(maxsize=4096)
def _computed_before(sources: tuple[Source, ...], file: str, line: int, **given: bool) -> Earlier | None:
    return computed_before(sources, file, line, **given)


def _again(frames: Frames) -> bool:
    """True for a checkpointed forward pass that runs inside a backward pass."""
    return any(_AUTOGRAD in frame["file"] for frame in _around_checkpoint(frames))


def _asks(frames: Frames) -> StackFrame | None:
    """The user's line that called the checkpointed forward pass."""
    if _again(frames):
        return None
    return next((frame for frame in _around_checkpoint(frames) if is_user_file(frame["file"])), None)


def _around_checkpoint(frames: Frames) -> Frames:
    """The frames that led to a checkpointed forward pass, innermost first; empty if the stack is in none."""
    at = max((n for n, frame in enumerate(frames) if frame["file"].endswith(_CHECKPOINT)), default=len(frames))
    return frames[at + 1 :]
