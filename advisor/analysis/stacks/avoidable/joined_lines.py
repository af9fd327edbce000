"""Finds loops that copy all of their results so far in each iteration: `out = torch.cat([out, new])`.

n iterations copy n (n + 1) / 2 results. A list, joined once after the loop, copies n. By the source; measured by stack samples of the line.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence

from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, profiled_values, samples_by_rank, step_rows
from rn50_advisor.advisor.analysis.stacks.source.loop_source import covers, function_at
from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import name_of
from rn50_advisor.advisor.analysis.stacks.stack_profiles import CodeLine, line_of
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_JOINED_S
from rn50_advisor.advisor.model.recording import Recording, Source

_JOINS = (  # of torch, numpy and pandas
    "cat",
    "column_stack",
    "concat",
    "concatenate",
    "dstack",
    "hstack",
    "row_stack",
    "vstack",
)
_LOOPS = (ast.For, ast.While)


def joined_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile. On a GPU, at most the time in which the GPU had nothing queued."""
    found = samples_by_rank(_joining(recording))
    return profiled_values(recording, steady, values, STEP_JOINED_S, found, by_source=True)


def joined_lines(recording: Recording) -> tuple[HotLine, ...]:
    """These lines over all ranks, the longest first."""
    return longest(recording, ((line, "", count) for _, line, count in _joining(recording)))


def _joining(recording: Recording) -> Iterator[tuple[int, CodeLine, int]]:
    """Yields (rank, the user's innermost line, number of samples that found it awake)."""
    for rank, _, row, count in step_rows(recording):
        user = row["user"]
        if joins_all_so_far(recording.sources, user["file"], user["line"]):
            yield rank, line_of(user), count


def joins_all_so_far(sources: Sequence[Source], file: str, line: int) -> bool:
    """True if a loop makes a tensor, an array or a table longer on this line and uses it for nothing else."""
    function = function_at(sources, file, line)
    return function is not None and _joins(function, line)


# Cached, since a live job is analysed each second, and its profiles have the same lines again and again.
@functools.lru_cache(maxsize=1024)
def _joins(function: ast.AST, line: int) -> bool:
    around = [node for node in ast.walk(function) if isinstance(node, _LOOPS) and covers(node, line)]
    loop = max(around, key=lambda node: node.lineno, default=None)
    statements = [] if loop is None else [node for node in ast.walk(loop) if isinstance(node, ast.Assign)]
    own = next((node for node in statements if covers(node, line)), None)
    if loop is None or own is None or not isinstance(own.value, ast.Call) or not own.value.args:
        return False
    longer, first = ast.unparse(own.targets[0]), own.value.args[0]
    joined = first.elts if name_of(own.value) in _JOINS and isinstance(first, (ast.List, ast.Tuple)) else []
    if ast.unparse(own.value.func) in ("np.append", "numpy.append"):
        joined = [first]
    uses = sum(isinstance(node, (ast.Name, ast.Attribute)) and ast.unparse(node) == longer for node in ast.walk(loop))
    return any(ast.unparse(each) == longer for each in joined) and uses == 2
