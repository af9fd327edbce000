"""Finds lines that turn tensors into text in the step, and measures them by stack samples, wherever in the step they are.

An f-string is made before the function that it is given to decides whether anybody reads it: `logger.debug(f"{norms}")`. Formatting
ten elements took 0.25 ms, 512 elements 3 ms, and on a GPU it waits for the tensor and copies it first. What is made a list or an array
for a text shows by the source alone: `f"{h.tolist()}"` leaves no frame.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence

from rn50_advisor.advisor.analysis.stacks.after_update import evaluates, evaluation_lines
from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, profiled_values, samples_by_rank
from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import name_of
from rn50_advisor.advisor.analysis.stacks.source.written_names import computed, statement_at
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    FETCH,
    CodeLine,
    SeenStack,
    line_of,
    profiles_by_rank,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_TEXT_S
from rn50_advisor.advisor.model.recording import Recording, Source

_FORMATTING = "/torch/_tensor_str.py"
_TEXTS = ("str", "repr", "format", "dumps")  # that make a text of what they are given
_OUT_OF_TENSORS = ("tolist", "numpy")


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
            formats = any(file.endswith(_FORMATTING) for file in files) or _formats_a_list(row, recording.sources)
            if formats and not any(FETCH in file for file in files) and not evaluates(row, evaluations):
                user = row["user"]
                yield rank, line_of(user), row.get("awake", row["count"])


def _formats_a_list(row: SeenStack, sources: Sequence[Source]) -> bool:
    """True for work of the line itself, if it makes a text of a tensor's elements."""
    frame = row["frames"][0]
    if line_of(frame) != line_of(row["user"]):
        return False
    function = function_at(sources, frame["file"], frame["line"])
    return function is not None and _has_text_of_a_list(function, frame["line"])


# Cached, since a live job is analysed each second, and its profiles have the same lines again and again.
@functools.lru_cache(maxsize=1024)
def _has_text_of_a_list(function: ast.AST, line: int) -> bool:
    statement = statement_at(function, line)
    nodes = [] if statement is None else [node for each in computed(statement) for node in ast.walk(each)]
    return any(
        name_of(call) in _OUT_OF_TENSORS and isinstance(call, ast.Call) and not call.args
        for node in nodes
        if _is_text(node)
        for call in ast.walk(node)
    )


def _is_text(node: ast.AST) -> bool:
    """An f-string, text with `%`, or a call that makes one."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mod):
        return isinstance(node.left, (ast.Constant, ast.JoinedStr))
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Call) and name_of(node) in _TEXTS)
