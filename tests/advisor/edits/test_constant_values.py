"""Which values the code shows to be the same for each item of a data set."""

from __future__ import annotations

import ast
from textwrap import dedent

import pytest

from rn50_advisor.advisor.edits.constant_values import Values, opens
from rn50_advisor.advisor.edits.syntax import Code, parse_code

MODULE = """
import json, sys, os, zipfile
from pathlib import Path
from config import options, ROOT as root
P = Path("/data") / "items.zip"
NUMBER = 3
NUMBER += 1
stream = open("/data/items.jsonl")
cache = {}
def paths():
    return []

class Items:
    names = ["a"]
    def __init__(self, folder, cfg, files):
        self.folder = folder
        self.index = os.path.join(folder, "index.json")
        self.table = f"{folder}/table"
        self.cfg = cfg
        self.handle = open(folder)
        self.files = files
        self.moved = folder
        self.at = 0
    def move(self, folder):
        self.moved = folder
    def next(self):
        self.at += 1
    def __getitem__(self, i):
        path = self.files[i]
        here = self.folder + "/x"
        with open(P) as first, open(path) as own:
            pass
        for each in self.names:
            pass
        return EXPRESSION
"""


def same(expression: str, *constant: str) -> bool:
    code = parse_code("data.py", dedent(MODULE).replace("EXPRESSION", expression))
    assert isinstance(code, Code)
    function = next(n for n in ast.walk(code.tree) if isinstance(n, ast.FunctionDef) and n.name == "__getitem__")
    returned = function.body[-1]
    assert isinstance(returned, ast.Return)
    return Values(code, function, constant).same(returned.value)


@pytest.mark.parametrize(
    "expression",
    [
        "'/data/items.zip'",
        "P",
        "root",
        "options.folder",
        "options['data'].folder",
        "self.folder",
        "self.index",
        "self.table",
        "self.cfg.data.path",
        "self.files[0]",
        "here",
        "str(P / 'a')",
        "f'{root}/{self.folder}'",
        "os.path.join(self.folder, 'x')",
        "open(P)",
        "zipfile.ZipFile(self.index)",
        "json.load(open(self.index))",
        "first",
        "Path(self.folder).joinpath('x')",
        "[root, 'b']",
        "self.folder == 'x'",
        "self.cfg.mode is not None and self.cfg.part > 2",
    ],
)
def test_what_does_not_depend_on_the_item_is_the_same(expression: str) -> None:
    assert same(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "i",
        "path",
        "own",
        "each",
        "self.files[i]",
        "f'{root}/{i}'",
        "open(path)",
        "os.path.join(self.folder, path)",
        "self.moved",  # another method sets it as well
        "self.at",
        "self.unknown",
        "self",
        "NUMBER",
        "stream",  # it has moved on
        "self.handle",
        "json.load(self.handle)",
        "json.load(sys.stdin)",
        "next(stream)",
        "paths()",  # whatever that returns
        "self.open_next()",
        "[n for n in self.files]",
        "lambda: P",
        "i == 3",
        "self.folder in self.names",
        "'x' not in cache",
        "self.moved is None",
        "self.files == self.names",
    ],
)
def test_what_depends_on_the_item_or_on_what_the_code_does_not_show_is_not(expression: str) -> None:
    assert not same(expression)


def test_a_parameter_is_the_same_if_its_callers_say_so() -> None:
    assert same("i", "i") and same("open(i)", "i")


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        *(
            (name, True)
            for name in ("open", "load", "read_csv", "from_pretrained", "connect", "ZipFile", "File", "open_dataset")
        ),
        *(
            (name, False)
            for name in ("randn", "sleep", "next", "acquire", "opened", "randint", "execute", "N", "stack")
        ),
    ],
)
def test_names_of_calls_that_open_or_build(name: str, answer: bool) -> None:
    assert opens(name) == answer
