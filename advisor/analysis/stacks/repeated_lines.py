"""Finds lines of the user's code that compute the same anew in every step, and measures them by stack samples."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.stacks.hot_lines import place
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, profiled_values, step_rows
from rn50_advisor.advisor.analysis.stacks.source.repeated_source import Entered, Entry, repeated_work
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    CallPaths,
    SeenStack,
    inner,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_REPEATED_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

# Frames of torch between a line that calls a model and the model's forward. These pass on its arguments.
_PASS_ON = ("/torch/nn/modules/module.py", "/torch/nn/parallel/", "/torch/utils/_contextlib.py")
_Line = tuple[str, int, str]


def repeated_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile. On a GPU, at most the time in which the GPU had nothing queued."""
    seen = Counter[int]()
    for rank, *_, count in _repeated(recording):
        seen[rank] += count
    return profiled_values(recording, steady, values, STEP_REPEATED_S, seen, by_source=True)


def repeated_lines(recording: Recording) -> tuple[HotLine, ...]:
    """These lines over all ranks, the longest first."""
    return longest(recording, ((line, leaf, count) for _, line, leaf, count in _repeated(recording)))


def _repeated(recording: Recording) -> Iterator[tuple[int, _Line, str, int]]:
    """Yields (rank, line, innermost function if another one, number of samples that found it awake)."""
    for rank, paths, row, count in step_rows(recording):
        found = _place(row, paths, recording.sources)
        if found is not None:
            leaf = row["frames"][0]
            own = (leaf["file"], leaf["function"]) == (found.file, found.function)
            yield rank, (found.file, found.line, found.function), "" if own else place(leaf), count


def _place(row: SeenStack, paths: CallPaths, sources: tuple[Source, ...]) -> Entry | None:
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
    return repeated_work(sources, entries, paths.backwards)
