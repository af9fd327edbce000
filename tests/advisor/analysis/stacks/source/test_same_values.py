"""Which expressions have the same value each time: attributes of families of classes, constants of classes, packages, containers."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from rn50_advisor.advisor.analysis.stacks.source.loop_source import function_at
from rn50_advisor.advisor.analysis.stacks.source.same_values import Entry, Module, Rounds, Scope
from rn50_advisor.advisor.analysis.stacks.source.written_names import parameters
from rn50_advisor.advisor.model.recording import Source

FILE = "/job/data.py"
TEXT = textwrap.dedent("""\
    import collections, re
    import numpy as np
    import torch

    class CFG:
        size = 224
        level = 0

    class Base:
        def __init__(self, rate, net):
            self.rate = rate
            self.net = net
            self.seen = []

    class Clips(Base):
        bands = 80
        def bank(self):
            return np.arange(self.bands)
        def noise(self):
            return np.random.rand(self.bands)
        def __getitem__(self, item):
            names = []
            pass

    class Later(Clips):
        def remember(self, item):
            self.seen.append(item)
    """)


def scope(rounds: Rounds = "items", more: str = "") -> Scope:
    sources = (Source(FILE, "", TEXT), Source("/job/train.py", "", more))
    function: Any = function_at(sources, FILE, at("names = []"))
    known = dict.fromkeys(parameters(function), False) | {"self": True, "names": True}
    return Scope(Module.of(sources, FILE), function, known, rounds=rounds)


def at(words: str) -> int:
    return next(n for n, line in enumerate(TEXT.splitlines(), 1) if words in line)


def same(text: str, rounds: Rounds = "items", more: str = "") -> bool:
    return scope(rounds, more).same(ast.parse(text, mode="eval").body)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("self.rate", True),  # of a base class
        ("self.bands", True),
        ("CFG.size", True),
        ("self.seen", False),  # a class below adds to it
        ("self.unknown", False),
        ("self.bank()", True),
        ("self.noise()", False),
        ("re.compile('a' * 9).pattern", True),
        ("collections.Counter('abc').most_common", True),
        ("collections.deque('abc')", True),
        ("torch.nn.Linear(3, 4)", False),
        ("np.loadtxt('a.txt')", False),
        ("np.full(item.shape, 3)", False),
        ("[f(x) for x in item]", False),
        ("names.append(self.rate)", True),
        ("names.append(item)", False),
        ("' '.join(str(n) for n in range(9)).upper()", True),
    ],
)
def test_expressions_of_an_item(text: str, expected: bool) -> None:
    assert same(text) == expected


def test_from_step_to_step_the_shapes_of_batches_are_the_same() -> None:
    assert same("np.full(item.shape, 3)", "steps") and same("torch.zeros(item.size(0), len(item))", "steps")


def test_what_another_file_changes_is_not_the_same() -> None:
    assert not same("CFG.size", more="CFG.size = 64\n")
    assert not same("self.rate", more="def train(data):\n    data.inner.rate = 8000\n")
    assert not same("CFG.level", more="def train():\n    global level\n    level = 3\n")


def test_a_call_is_known_by_the_class_that_it_makes() -> None:
    statement = "bank = Clips(16000, None)"
    text = TEXT.replace("names = []", statement)
    sources = (Source(FILE, "", text),)
    function: Any = function_at(sources, FILE, at("names = []"))
    here = Scope(Module.of(sources, FILE), function, {}, rounds="items")
    made: Any = function_at(sources, FILE, at("self.rate = rate"))
    of = ast.parse("class Clips: pass").body[0]
    assert isinstance(of, ast.ClassDef)
    calls = here.calls_of(at("names = []"), Entry(FILE, 9, "Clips.__init__", "called"), of)
    assert [ast.unparse(call) for call in calls] == ["Clips(16000, None)"]
    assert here.gives_same(calls, here.entered(here.module, made, calls, "called"))
