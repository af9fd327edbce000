"""Single arguments and literals are changed; every other character stays."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.edits.calls import Argument
from rn50_advisor.advisor.edits.edit_changes import NewArguments, NewLiteral
from rn50_advisor.advisor.edits.rewrite import rewritten
from rn50_advisor.advisor.edits.syntax import Code, parse_code


def parsed(text: str) -> Code:
    code = parse_code("train.py", text)
    assert code is not None
    return code


def the_call(code: Code, name: str = "f") -> ast.Call:
    return next(call for call in code.calls() if ast.unparse(call.func) == name)


def added(text: str, *add: tuple[str, str]) -> str | None:
    code = parsed(text)
    return rewritten(code, [NewArguments(the_call(code), add=add)])


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("x = f()\n", "x = f(n=6)\n"),
        ("f(a, b = 2)", "f(a, b = 2, n=6)"),
        ("f(a,b)\n", "f(a,b,n=6)\n"),
        ("f(a, b,)\n", "f(a, b, n=6,)\n"),
        ("f(\n    a,\n    b,  # why\n)\n", "f(\n    a,\n    b,  # why\n    n=6,\n)\n"),
        ("f(\n    a, b)\n", "f(\n    a, b, n=6)\n"),
        ("f(a,\n  b)  # after\n", "f(a,\n  b,\n  n=6)  # after\n"),
        ("\ufefff(größe='ü', b=1)\n", "\ufefff(größe='ü', b=1, n=6)\n"),
        ("a = 1; f(b)\n", "a = 1; f(b, n=6)\n"),
        ("if f(a):\n    g( 1 )\n", "if f(a, n=6):\n    g( 1 )\n"),
        ("def g():\n\tx = 1   \n\treturn f(a)\n\n\n", "def g():\n\tx = 1   \n\treturn f(a, n=6)\n\n\n"),
        ("x = 1 \r\nf(a)\r\n", "x = 1 \r\nf(a, n=6)\r\n"),
    ],
)
def test_an_argument_is_added_as_the_others_are_written(before: str, after: str) -> None:
    assert added(before, ("n", "6")) == after


def test_on_a_long_line_it_gets_its_own_where_the_call_has_several() -> None:
    a = "a" * 90
    assert added(f"f(\n    {a}, b)\n", ("number", "6")) == f"f(\n    {a}, b,\n    number=6)\n"
    assert added(f"f({a}, b)\n", ("number", "6")) == f"f({a}, b, number=6)\n"


def test_arguments_are_set_added_and_taken_away_at_once() -> None:
    code = parsed("f(a, 2, c=3, d=4)\n")
    call = the_call(code)
    put = ((Argument(call.args[1], None, 1), "20"), (Argument(call.keywords[0].value, "c", None), "x if y else None"))
    assert rewritten(code, [NewArguments(call, put, (("e", "5"),), ("d",))]) == "f(a, 20, c=x if y else None, e=5)\n"


@pytest.mark.parametrize(
    ("before", "drop", "after"),
    [
        ("f(a, b=1)", ("b",), "f(a)"),
        ("f(b=1)", ("b",), "f()"),
        ("f(b=1, c=2)", ("b",), "f(c=2)"),
        ("f(\n    a,\n    b=1,\n)", ("b",), "f(\n    a,\n)"),
        ("f(a)", ("b",), "f(a)"),
    ],
)
def test_an_argument_is_taken_away_with_its_comma(before: str, drop: tuple[str, ...], after: str) -> None:
    code = parsed(before)
    assert rewritten(code, [NewArguments(the_call(code), drop=drop)]) == after


def test_literals_far_apart_are_changed_together() -> None:
    text = "a = 1  # one\n" + "pass\n" * 50 + "b = {'n': 'ä', 'm': 2}\n"
    code = parsed(text)
    one = code.tree.body[0]
    last = code.tree.body[-1]
    assert isinstance(one, ast.Assign) and isinstance(last, ast.Assign) and isinstance(last.value, ast.Dict)
    changes = [NewLiteral(last.value.values[1], "20"), NewLiteral(one.value, "10")]
    assert rewritten(code, changes) == text.replace("= 1", "= 10").replace("2}", "20}")


def test_two_changes_of_one_statement_are_both_made() -> None:
    code = parsed("x = f(1, g(2))\n")
    outer, inner = the_call(code), the_call(code, "g")
    changes = [NewLiteral(inner.args[0], "20"), NewLiteral(outer.args[0], "10")]
    assert rewritten(code, changes) == "x = f(10, g(20))\n"


def test_a_value_that_is_no_expression_changes_nothing() -> None:
    code = parsed("x = f(1)\n")
    assert rewritten(code, [NewLiteral(the_call(code).args[0], "1 +")]) is None


def test_a_node_of_another_text_finds_no_place() -> None:
    other = parsed("y = f(1)\n")
    assert rewritten(parsed("x = 1\n"), [NewLiteral(the_call(other).args[0], "2")]) is None
