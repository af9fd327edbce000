"""Finds loops of the user's code that handle tensors element by element in the step, and measures them by stack samples.

Every such operation computes one number and costs some microseconds all the same. What samples found in modules, losses and backward passes
within such a loop does not count: these work on whole tensors.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.stacks.loop_lines import (
    WHOLE_TENSORS,
    longest,
    profiled_values,
    samples_by_rank,
    step_rows,
)
from rn50_advisor.advisor.analysis.stacks.source.element_source import element_loop
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    CallPaths,
    SeenStack,
    inner,
    place_of,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_ELEMENTS_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_Loop = tuple[str, int, str]  # file, line of the loop, function


def element_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile. On a GPU, at most the time in which the GPU had nothing queued."""
    return profiled_values(
        recording, steady, values, STEP_ELEMENTS_S, samples_by_rank(_in_loops(recording)), by_source=True
    )


def element_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The loops over all ranks, the longest first."""
    return longest(recording, ((loop, "", count) for _, loop, count in _in_loops(recording)))


def _in_loops(recording: Recording) -> Iterator[tuple[int, _Loop, int]]:
    """Yields (rank, loop, number of samples that found it awake). Output, items of a data set and evaluations are reported elsewhere."""
    for rank, paths, row, count in step_rows(recording):
        loop = _loop_around(row, paths, recording.sources)
        if loop is not None:
            yield rank, loop, count


def _loop_around(row: SeenStack, paths: CallPaths, sources: tuple[Source, ...]) -> _Loop | None:
    """The innermost function's loop of this kind. In functions on the way to the backward pass it is one beside that."""
    for frame in inner(row["frames"]):
        if any(part in frame["file"] for part in WHOLE_TENSORS):
            return None
        if is_user_file(frame["file"]):
            backwards = paths.backwards.get(place_of(frame), frozenset())
            line = element_loop(sources, frame["file"], frame["line"], backwards)
            if line is not None:
                return frame["file"], line, frame["function"]
    return None
