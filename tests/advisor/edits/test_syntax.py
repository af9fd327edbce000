"""A parsed file knows who stands around whom; what people do not write is not parsed."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.edits.syntax import Code, dotted_name, inside, is_literal, last_name, literal, parse_code

TEXT = """\
class Net:
    def forward(self, x):
        async def inner():
            return relu(x)
        return inner
"""


def parsed(text: str) -> Code:
    code = parse_code("train.py", text)
    assert code is not None
    return code


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def test_the_functions_and_the_class_around_a_call_are_known_innermost_first() -> None:
    code = parsed(TEXT)
    (call,) = code.calls()
    assert [function.name for function in code.functions_around(call)] == ["inner", "forward"]
    cls = code.class_around(call)
    assert cls is not None and cls.name == "Net"
    assert [type(node).__name__ for node in code.around(call)] == [
        *("Return", "AsyncFunctionDef", "FunctionDef", "ClassDef", "Module"),
    ]
    assert code.parent(code.tree) is None and code.class_around(cls) is None


@pytest.mark.parametrize(
    "text",
    ["def f(:", "a = 1\rb = 2\n", "a = 1\f\n", "a\0b", "x = " + "-" * 200 + "1", "x = " + "(" * 5000],
    ids=["no Python", "other ends of line", "form feed", "null", "nested", "too deep for any parser"],
)
def test_what_is_no_usual_python_is_not_parsed(text: str) -> None:
    assert parse_code("train.py", text) is None


@pytest.mark.parametrize("text", ["", "\ufeffa = 1\n", "a = 1\r\nb = 2\r\n", "x = " + "-" * 90 + "1"])
def test_what_people_write_is(text: str) -> None:
    assert parsed(text).text == text


def test_a_scope_ends_where_another_starts() -> None:
    tree = ast.parse("a = 1\nfor b in c:\n    d = lambda: e\ndef f():\n    g = 1\n")
    names = {node.id for node in inside(tree) if isinstance(node, ast.Name)}
    assert names == {"a", "b", "c", "d"}


@pytest.mark.parametrize(
    ("text", "value"), [("1", 1), ("-2.5", -2.5), ("'a'", "a"), ("True", True), ("None", None), ("- 3", -3)]
)
def test_literals_have_values(text: str, value: object) -> None:
    assert is_literal(expression(text)) and literal(expression(text)) == value


@pytest.mark.parametrize("text", ["a", "[1]", "1 + 1", "b'x'", "...", "~1", "f''", "--1", "+1"])
def test_all_else_is_none(text: str) -> None:
    assert not is_literal(expression(text))


@pytest.mark.parametrize(("text", "name"), [("a", "a"), ("a.b.c", "c"), ("f().g", "g"), ("a[0]", None), ("f()", None)])
def test_a_call_goes_by_its_last_name(text: str, name: str | None) -> None:
    assert last_name(expression(text)) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [("f", "f"), ("torch.utils.data.f", "torch.utils.data.f"), ("g('x').data.f", "f"), ("a['x'].f", "f"), ("f()", "")],
)
def test_a_whole_name_holds_no_other_values(text: str, name: str) -> None:
    assert dotted_name(expression(text)) == name


def test_a_node_in_words_is_one_short_line() -> None:
    code = parsed("x = {\n  'a': 1,\n  'b': 2}\n")
    assert code.words(code.tree.body[0]) == "x = {'a': 1, 'b': 2}"
    assert code.words(expression("+".join("abcdefgh" * 5))).endswith("…")
    assert len(code.words(expression("+".join("abcdefgh" * 5)))) == 60
