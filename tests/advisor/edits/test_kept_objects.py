"""Objects that are there before an item is made, and remain."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from rn50_advisor.advisor.edits.constant_values import Values
from rn50_advisor.advisor.edits.kept_objects import kept_object
from rn50_advisor.advisor.edits.syntax import parse_code

DATA = """
class Items:
    {more}
    def __init__(self, path):
        self.path = path
        {made}
    def __getitem__(self, i):
        return {taken}
"""


def kept(taken: str, made: str = "self.file = open(path)", more: str = "length = 3") -> list[str] | None:
    code = parse_code("data.py", dedent(DATA.format(taken=taken, made=made, more=more)))
    assert code is not None
    function = next(n for n in ast.walk(code.tree) if isinstance(n, ast.FunctionDef) and n.name == "__getitem__")
    value = next(n.value for n in ast.walk(function) if isinstance(n, ast.Return))
    found = None if value is None else kept_object(Values(code, function), value)
    return None if found is None else [ast.unparse(index) for index in found]


@pytest.mark.parametrize(
    ("taken", "indices"),
    [
        ("self.file", []),
        ("self.file.root", []),
        ("self.file['images']", ["'images'"]),
        ("self.file[i % 9]['images']", ["i % 9", "'images'"]),
        ("open(self.path)", []),
        ("open(self.paths[i])", None),
        ("i", None),
        ("self.unknown", None),
        ("unknown", None),
        ("self.file.read(3)", None),
    ],
)
def test_what_stands_for_a_kept_object(taken: str, indices: list[str] | None) -> None:
    assert kept(taken) == indices


@pytest.mark.parametrize(
    ("more", "made", "found"),
    [
        ("file: object", "pass", []),
        ("file = None", "pass", []),
        ("def reset(self): self.file = None", "self.file = open(path)", []),
        ("def reset(self, path): self.file = open(path)", "self.file = None", None),
        ("def use(self):\n        with open('a') as self.file: pass", "self.file = None", None),
        ("def fill(self): self.file[0] = open('a')", "self.file = [None]", []),
        ("def use(self):\n        if self.file is None: self.file = open(self.path)", "self.file = None", []),
        ("def use(self, i):\n        if self.file is None: self.file = open(self.paths[i])", "self.file = None", None),
        ("def use(self):\n        if self.path: self.file = open(self.path)", "self.file = None", None),
    ],
)
def test_an_attribute_that_is_set_once(more: str, made: str, found: list[str] | None) -> None:
    assert kept("self.file", made, more) == found


def test_functions_that_return_each_other_are_followed_only_so_far() -> None:
    assert kept("self.one()", more="def one(self): return self.two()\n    def two(self): return self.one()") is None
