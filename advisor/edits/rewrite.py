"""Changes single arguments and literals of a file and leaves every other character of it as it was (libcst)."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from typing import cast

import libcst as cst
from libcst.metadata import MetadataWrapper, PositionProvider

from advisor.edits.calls import Argument
from advisor.edits.changes import Change, NewArguments, NewLiteral

_LONG_LINE = 100  # from there on an added argument gets a line of its own, where the call has more than one line
Span = tuple[int, int, int, int]


def rewritten(text: str, changes: Sequence[Change]) -> str | None:
    """The new text; None where a change did not find its place."""
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix(mark) if mark else text
    lines = text.split("\n")
    wanted = {_span(change.node, lines): change for change in changes}
    try:
        wrapper = MetadataWrapper(cst.parse_module(text))
        editor = _Editor(wanted)
        new = wrapper.visit(editor).code
        cst.parse_module(new)
    except (cst.ParserSyntaxError, cst.CSTValidationError, RecursionError):
        return None
    return mark + new if editor.done == len(wanted) == len(changes) else None


def _span(node: ast.expr, lines: Sequence[str]) -> Span:
    """Lines from 1 and columns in characters, as libcst counts them; ast counts bytes."""
    last = node.end_lineno or node.lineno
    start = len(lines[node.lineno - 1].encode()[: node.col_offset].decode())
    end = len(lines[last - 1].encode()[: node.end_col_offset].decode())
    return node.lineno, start, last, end


class _Editor(cst.CSTTransformer):
    METADATA_DEPENDENCIES = (PositionProvider,)

    def __init__(self, wanted: Mapping[Span, Change]) -> None:
        super().__init__()
        self._wanted = wanted
        self.done = 0

    def on_leave(
        self, original_node: cst.CSTNodeT, updated_node: cst.CSTNodeT
    ) -> cst.CSTNodeT | cst.RemovalSentinel | cst.FlattenSentinel[cst.CSTNodeT]:
        change = self._change(original_node)
        if change is None or (isinstance(change, NewArguments) and not isinstance(updated_node, cst.Call)):
            return super().on_leave(original_node, updated_node)
        self.done += 1
        if isinstance(change, NewLiteral):
            return cast(cst.CSTNodeT, cst.parse_expression(change.value))
        column = self.get_metadata(PositionProvider, original_node).end.column
        return cast(cst.CSTNodeT, _with_arguments(cast(cst.Call, updated_node), change, column))

    def _change(self, node: cst.CSTNode) -> Change | None:
        if not isinstance(node, cst.BaseExpression):
            return None
        at = self.get_metadata(PositionProvider, node)
        return self._wanted.get((at.start.line, at.start.column, at.end.line, at.end.column))


def _with_arguments(call: cst.Call, change: NewArguments, column: int) -> cst.Call:
    """`column`: where the call ended until now."""
    for argument, value in change.put:
        call = _put(call, argument, value)
    for name in change.drop:
        call = _drop(call, name)
    for name, value in change.add:
        call = _add(call, name, value, column)
        column += len(name) + len(value) + 3
    return call


def _put(call: cst.Call, argument: Argument, value: str) -> cst.Call:
    def is_it(at: int, arg: cst.Arg) -> bool:
        if argument.keyword is None:
            return at == argument.position
        return arg.keyword is not None and arg.keyword.value == argument.keyword

    new = cst.parse_expression(value)
    return call.with_changes(
        args=[arg.with_changes(value=new) if is_it(at, arg) else arg for at, arg in enumerate(call.args)]
    )


def _drop(call: cst.Call, name: str) -> cst.Call:
    kept = [arg for arg in call.args if arg.keyword is None or arg.keyword.value != name]
    last = call.args[-1]
    if kept and last not in kept:  # what stood before the bracket stays before the bracket
        kept[-1] = kept[-1].with_changes(comma=last.comma, whitespace_after_arg=last.whitespace_after_arg)
    return call.with_changes(args=kept)


def _add(call: cst.Call, name: str, value: str, column: int) -> cst.Call:
    """Another keyword at the end, on a line of its own where the others have theirs; comments stay beside what they speak of."""
    new = cst.Arg(
        keyword=cst.Name(name),
        value=cst.parse_expression(value),
        equal=cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace("")),
    )
    if not call.args:
        return call.with_changes(args=[new])
    last = call.args[-1]
    long = column + len(name) + len(value) + 3 > _LONG_LINE
    between = _separator(call, long=long)
    if isinstance(last.comma, cst.Comma):
        before_bracket = last.comma.whitespace_after
        new = new.with_changes(comma=last.comma.with_changes(whitespace_after=_without_comment(before_bracket)))
    else:
        before_bracket = last.whitespace_after_arg
        new = new.with_changes(whitespace_after_arg=_without_comment(before_bracket))
        last = last.with_changes(whitespace_after_arg=cst.SimpleWhitespace(""))
    comma = cst.Comma(whitespace_after=_with_comment_of(between, before_bracket))
    return call.with_changes(args=[*call.args[:-1], last.with_changes(comma=comma), new])


def _separator(call: cst.Call, *, long: bool) -> cst.BaseParenthesizableWhitespace:
    """What stands between the arguments: before the last one, or on long lines the line break that there is somewhere."""
    commas = [arg.comma.whitespace_after for arg in call.args[:-1] if isinstance(arg.comma, cst.Comma)]
    breaks = [w for w in [call.whitespace_before_args, *commas] if isinstance(w, cst.ParenthesizedWhitespace)]
    if commas and not (long and breaks):
        return commas[-1]
    return breaks[-1] if breaks else cst.SimpleWhitespace(" ")


def _without_comment(space: cst.BaseParenthesizableWhitespace) -> cst.BaseParenthesizableWhitespace:
    if not isinstance(space, cst.ParenthesizedWhitespace):
        return space
    first = space.first_line.with_changes(comment=None, whitespace=cst.SimpleWhitespace(""))
    return space.with_changes(first_line=first, empty_lines=[])


def _with_comment_of(
    space: cst.BaseParenthesizableWhitespace, commented: cst.BaseParenthesizableWhitespace
) -> cst.BaseParenthesizableWhitespace:
    """The separator with the comments that stood before the bracket: they spoke of what was the last argument until now."""
    if not isinstance(commented, cst.ParenthesizedWhitespace):
        return _without_comment(space)
    if commented.first_line.comment is None and not commented.empty_lines:
        return _without_comment(space)
    if isinstance(space, cst.ParenthesizedWhitespace):
        return commented.with_changes(indent=space.indent, last_line=space.last_line)
    return commented.with_changes(last_line=cst.SimpleWhitespace(commented.last_line.value + "    "))
