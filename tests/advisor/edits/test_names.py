"""A name stands for a value only where nothing else could have bound it."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.edits.names import assignments, bound_otherwise, parameters, written_as, written_dict
from rn50_advisor.advisor.edits.syntax import Code, parse_code


def parsed(text: str) -> Code:
    code = parse_code("train.py", text)
    assert code is not None
    return code


def used(code: Code) -> ast.expr:
    """The argument of the call `use(…)`."""
    (call,) = (call for call in code.calls() if isinstance(call.func, ast.Name) and call.func.id == "use")
    return call.args[0]


def unparsed(node: ast.expr | None) -> str | None:
    return None if node is None else ast.unparse(node)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("n = 1", ["1"]),
        ("n: int = 1", ["1"]),
        ("n: int", []),
        ("n = m = 2", ["2"]),
        ("n = 1\nif a:\n    n = 2", ["1", "2"]),
        ("n, m = 1, 2", [None]),
        ("[*n] = a", [None]),
        ("n += 1", [None]),
        ("for n in a: pass", [None]),
        ("[0 for n in a]", [None]),
        ("with a as n: pass", [None]),
        ("with a as (n, m): pass", [None]),
        ("(n := 1)", [None]),
        ("import n", [None]),
        ("import n.m", [None]),
        ("from m import a as n", [None]),
        ("def n(): pass", [None]),
        ("class n: pass", [None]),
        ("try: pass\nexcept E as n: pass", [None]),
        ("match a:\n    case [n]: pass", [None]),
        ("match a:\n    case [*n]: pass", [None]),
        ("match a:\n    case {**n}: pass", [None]),
        ("n[0] = 1\nn.a = 2", []),
        ("def f():\n    n = 1", []),
        ("m = n", []),
    ],
)
def test_every_way_to_bind_a_name_is_seen(text: str, found: list[str | None]) -> None:
    made = [unparsed(node) for node in assignments(ast.parse(text), "n")]
    assert sorted(made, key=str) == found


@pytest.mark.parametrize(
    ("text", "otherwise"),
    [
        ("use(n)", False),
        ("lambda n: use(n)", True),
        ("lambda m: use(n)", False),
        ("class A:\n    n = 1\n    use(n)", True),
        ("class A:\n    n = 1\n    def f(self):\n        use(n)", False),
        ("def g():\n    global n\n    n = 2\nuse(n)", True),
        ("def f():\n    def g():\n        nonlocal n\n    use(n)", True),
    ],
)
def test_lambdas_classes_and_global_names_bind_otherwise(text: str, otherwise: bool) -> None:
    code = parsed(text)
    node = used(code)
    assert isinstance(node, ast.Name) and bound_otherwise(code, node) == otherwise


def test_parameters_are_those_with_a_name_of_their_own() -> None:
    (function,) = ast.parse("def f(a, /, b, *c, d=1, **e): pass").body
    assert isinstance(function, ast.FunctionDef) and parameters(function) == ["a", "b", "d"]


@pytest.mark.parametrize(
    ("text", "entries"),
    [
        ("use({'a': 1, 'b': x})", {"a": "1", "b": "x"}),
        ("use(dict(a=1))", {"a": "1"}),
        ("use({})", {}),
        ("o = {'a': 1}\nuse(o)", {"a": "1"}),
        ("def f():\n    o = dict(a=1)\n    use(o)", {"a": "1"}),
        ("o = {'a': 1}\nprint(o['a'])\nuse(o)", {"a": "1"}),
        ("o = {'a': 1}\no['a'] = 2\nuse(o)", None),
        ("o = {'a': 1}\ndel o['a']\nuse(o)", None),
        ("o = {'a': 1}\no.update(a=2)\nuse(o)", None),
        ("o = {'a': 1}\no = {'a': 2}\nuse(o)", None),
        ("p = {'a': 1}\no = p\nuse(o)", None),
        ("def f(o):\n    use(o)", None),
        ("use({'a': 1, 'a': 2})", None),
        ("use({'a': 1, **b})", None),
        ("use({1: 2})", None),
        ("use(dict(b))", None),
        ("use(dict(a=1, **b))", None),
        ("use(f())", None),
    ],
)
def test_a_dict_is_read_if_it_is_not_changed(text: str, entries: dict[str, str] | None) -> None:
    code = parsed(text)
    found = written_dict(code, used(code))
    assert (None if found is None else {name: ast.unparse(node) for name, node in found.items()}) == entries


@pytest.mark.parametrize(
    ("text", "stands_for"),
    [
        ("n = a + 1\nuse(n)", "a + 1"),
        ("a = 3\nb = a\nc = b\nuse(c)", "3"),
        ("n = 1\nn = 2\nuse(n)", "n"),
        ("def f(n):\n    use(n)", "n"),
        ("n = 1\ndef f():\n    n = 2\n    use(n)", "2"),
        ("n = n\nuse(n)", "n"),
        ("use(a.b)", "a.b"),
        ("use(n)", "n"),
    ],
)
def test_a_name_is_followed_to_what_was_written(text: str, stands_for: str) -> None:
    code = parsed(text)
    assert ast.unparse(written_as(code, used(code))) == stands_for
