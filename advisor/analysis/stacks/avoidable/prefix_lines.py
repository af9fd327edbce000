"""Finds loops that hand a sequence to a model which each iteration has made longer by a part: what came before is computed again each time.

`scores = model(ids)` and `ids = torch.cat([ids, scores[:, -1:].argmax(-1)], 1)` in one loop: n iterations compute n (n + 1) / 2 positions,
of which n are new. By the source; its work is measured by stack samples below these calls.
"""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator, Mapping, Sequence, Set

from rn50_advisor.advisor.analysis.stacks.loop_lines import (
    calls_model,
    longest,
    profiled_values,
    samples_by_rank,
    step_rows,
)
from rn50_advisor.advisor.analysis.stacks.source.loop_source import covers, function_at, names_in
from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import name_of
from rn50_advisor.advisor.analysis.stacks.stack_profiles import CodeLine, inner, line_of, starts_backward
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_PREFIX_S
from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_JOINS, _APPEND = ("cat", "concat", "concatenate", "hstack", "pad"), "append"
_LOOPS = (ast.For, ast.While)


def prefix_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile. On a GPU, at most the time in which the GPU had nothing queued."""
    found = samples_by_rank(_computing(recording))
    return profiled_values(recording, steady, values, STEP_PREFIX_S, found, by_source=True)


def prefix_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The calls in these loops over all ranks, the longest first."""
    return longest(recording, ((line, "", count) for _, line, count in _computing(recording)))


def _computing(recording: Recording) -> Iterator[tuple[int, CodeLine, int]]:
    """Yields (rank, the user's line with the call, number of samples that found it awake)."""
    for rank, _, row, count in step_rows(recording):
        frames = inner(row["frames"])
        model = next((n for n, frame in enumerate(frames) if calls_model(frame)), len(frames))
        if any(starts_backward(frame) for frame in frames):
            continue
        for frame in frames[model:]:
            if is_user_file(frame["file"]) and hands_on_prefix(recording.sources, frame["file"], frame["line"]):
                yield rank, line_of(frame), count
                break


def hands_on_prefix(sources: Sequence[Source], file: str, line: int) -> bool:
    """True if a loop that trains nothing calls something on the line with all of a sequence that it makes longer itself."""
    function = function_at(sources, file, line)
    return function is not None and _hands_on(function, line)


# Cached, since a live job is analysed each second, and its profiles have the same lines again and again.
@functools.lru_cache(maxsize=1024)
def _hands_on(function: ast.AST, line: int) -> bool:
    around = [node for node in ast.walk(function) if isinstance(node, _LOOPS) and covers(node, line)]
    if not around:
        return False
    loop = max(around, key=lambda node: node.lineno)
    nodes = list(ast.walk(loop))
    if any(isinstance(node, ast.Attribute) and node.attr == "backward" for node in nodes):
        return False
    statements = [node for node in nodes if isinstance(node, (ast.Assign, ast.Expr))]
    longer = _longer(statements, _made_from(statements, line), line)
    counted = names_in(loop.target) if isinstance(loop, ast.For) else set()
    calls = [node for node in nodes if isinstance(node, ast.Call) and covers(node, line)]
    # one layer after another, each with what all before have made, is another network
    own = [call for call in calls if name_of(call) not in (*_JOINS, _APPEND) and not names_in(call.func) & counted]
    given = (each for call in own for each in (*call.args, *(named.value for named in call.keywords)))
    return any(_has_whole(each, longer) for each in given)


def _made_from(statements: Sequence[ast.Assign | ast.Expr], line: int) -> set[str]:
    """Names of what a round computes from the call on the line."""
    found = set[str]()
    for node in statements:
        if isinstance(node, ast.Assign) and (covers(node, line) or names_in(node.value) & found):
            found |= set[str]().union(*map(names_in, node.targets))
    return found


def _longer(statements: Sequence[ast.Assign | ast.Expr], made: Set[str], line: int) -> set[str]:
    """Names of what each round makes longer by that, and of what it assigns from all of them."""
    found, assigned = set[str](), list[tuple[str, ast.expr]]()
    for node in statements:
        by_call = covers(node, line) or bool(names_in(node.value) & made)
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            name = node.targets[0].id
            assigned.append((name, node.value))
            if by_call and name_of(node.value) in _JOINS and name in names_in(node.value):
                found.add(name)
        elif by_call and isinstance(node.value, ast.Call) and name_of(node.value) == _APPEND:
            found |= names_in(node.value.func)
    return found | {name for name, value in assigned if not isinstance(value, ast.Call) and _has_whole(value, found)}


def _has_whole(node: ast.AST, names: Set[str]) -> bool:
    """True if one of these is in the expression, and not only its last part: `ids[:, -1:]`."""
    if isinstance(node, ast.Name):
        return node.id in names
    if isinstance(node, ast.Subscript) and _is_last(node.slice):
        return False
    if isinstance(node, ast.Attribute):
        return False  # its device, its shape
    return any(_has_whole(child, names) for child in ast.iter_child_nodes(node))


def _is_last(index: ast.expr) -> bool:
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    begins = (part.lower if isinstance(part, ast.Slice) else part for part in parts)
    return any(begin is not None and ast.unparse(begin) == "-1" for begin in begins)
