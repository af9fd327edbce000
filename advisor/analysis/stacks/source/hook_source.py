"""Reads hooks from the source: whether one only watches, and the call that registers it.

Several calls may register hooks of one kind: the name of the function tells them apart.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator, Sequence

from rn50_advisor.advisor.analysis.stacks.after_backward import CHANGES_TENSORS
from rn50_advisor.advisor.analysis.stacks.source.loop_source import covers, function_at, parsed
from rn50_advisor.advisor.analysis.stacks.source.written_names import FUNCTIONS, names
from rn50_advisor.advisor.model.recording import Source
from rn50_advisor.probes.documents.code_places import CodePlace, StackFrame

_LAMBDA = "<lambda>"
_TRAINS = re.compile(rf"{CHANGES_TENSORS}|\.step\(")
# An older method registers hooks of the same registry.
_ALSO = {"register_full_backward_hook": ("register_backward_hook",)}


def registering_call(sources: Sequence[Source], kind: str, function: str, hook: CodePlace) -> CodePlace | None:
    """The call of the method `kind` that is given this hook; None if there is none in the kept sources, or several that could be it.

    `function`: the hook's qualified name; `hook`: the place of its definition.
    """
    # `Watch.hook_of.<locals>.hook`: the call names `hook`, or the function that makes it
    own = {name for name in function.split(".") if name.isidentifier()}
    calls = [(source.path, call) for source in sources if not source.edited for call in _calls(source.text, kind)]
    given = [
        (file, call)
        for file, call in calls
        if (file == hook["file"] and covers(call, hook["line"])) or (_last(function) != _LAMBDA and own & _given(call))
    ]
    found = {(file, call.lineno) for file, call in given or calls}
    if len(found) != 1:
        return None
    file, line = found.pop()
    return {"file": file, "line": line}


def _last(function: str) -> str:
    return function.rpartition(".")[2]


def _given(call: ast.Call) -> set[str]:
    """Names, and attributes, in a call's arguments."""
    given = [*call.args, *(keyword.value for keyword in call.keywords)]
    attributes = (node.attr for each in given for node in ast.walk(each) if isinstance(node, ast.Attribute))
    return {name for each in given for name in names(each)} | set(attributes)


@functools.lru_cache(maxsize=256)  # a live job is analysed each second
def _calls(text: str, kind: str) -> tuple[ast.Call, ...]:
    tree = parsed(text)
    return () if tree is None else tuple(_of_kind(tree, (kind, *_ALSO.get(kind, ()))))


def _of_kind(tree: ast.AST, kinds: Sequence[str]) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in kinds:
            yield node


def only_watches(sources: Sequence[Source], hook: StackFrame) -> bool | None:
    """None if its source was not kept."""
    function = function_at(sources, hook["file"], hook["line"])
    return None if function is None else isinstance(function, FUNCTIONS) and _changes_nothing(function)


@functools.lru_cache(maxsize=256)  # a live job is analysed each second, with the same functions
def _changes_nothing(function: ast.AST) -> bool:
    returns = (node.value for node in ast.walk(function) if isinstance(node, ast.Return))
    gives = any(
        value is not None and not (isinstance(value, ast.Constant) and value.value is None) for value in returns
    )
    return not gives and not _TRAINS.search(ast.unparse(function))
