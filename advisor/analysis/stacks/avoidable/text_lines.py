"""Finds lines that turn tensors into text in the step, and measures them by stack samples, wherever in the step they are.

An f-string is made before the function that it is given to decides whether anybody reads it: `logger.debug(f"{norms}")`. Formatting
ten elements took 0.25 ms, 512 elements 3 ms, and on a GPU it waits for the tensor and copies it first.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.stacks.after_update import evaluates, evaluation_lines
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, profiled_values, samples_by_rank
from rn50_advisor.advisor.analysis.stacks.stack_profiles import FETCH, CodeLine, line_of, profiles_by_rank, user_rows
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_TEXT_S
from rn50_advisor.advisor.model.recording import Recording

_FORMATTING = "/torch/_tensor_str.py"


def text_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile. On a GPU, at most the time in which the GPU had nothing queued."""
    return profiled_values(recording, steady, values, STEP_TEXT_S, samples_by_rank(_formatting(recording)))


def text_lines(recording: Recording) -> tuple[HotLine, ...]:
    """These lines over all ranks, the longest first."""
    return longest(recording, ((line, "", count) for _, line, count in _formatting(recording)))


def _formatting(recording: Recording) -> Iterator[tuple[int, CodeLine, int]]:
    """Yields (rank, the user's line, number of samples that found it awake), without items of a data set and evaluations."""
    evaluations = evaluation_lines(recording)
    for rank, profile in profiles_by_rank(recording):
        for row in user_rows(profile):
            files = [frame["file"] for frame in row["frames"]]
            formats = any(file.endswith(_FORMATTING) for file in files)
            if formats and not any(FETCH in file for file in files) and not evaluates(row, evaluations):
                user = row["user"]
                yield rank, line_of(user), row.get("awake", row["count"])
