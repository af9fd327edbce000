"""What the source of a function says of its names: where they change, what they carry from round to round, what they stand for."""

from __future__ import annotations

import ast
import textwrap
from typing import Any

import pytest

from rn50_advisor.advisor.analysis.stacks.source.written_names import (
    bindings,
    carried,
    changed_globals,
    changed_on_objects,
    class_of,
    computed,
    guarded,
    imports,
    is_kept,
    statement_at,
    touches,
    used_as_object,
)


def parsed(text: str) -> Any:
    return ast.parse(textwrap.dedent(text))


def test_names_get_values_by_assignments_and_loops_and_change_in_place() -> None:
    tree = parsed("""
        a, (b, *c) = f(x)
        a[i] = y
        for d in range(n):
            e += d
        with open(p) as g:
            h.append(g)
        k.mul_(2)
        def inner():
            z = 1
        """)
    found = {(b.name, b.new, tuple(map(ast.unparse, b.of))) for b in bindings(tree)}
    assert found == {
        *((name, True, ("f(x)",)) for name in "abc"),
        ("a", False, ("y", "i")),
        ("i", False, ("y", "i")),
        ("d", True, ("range(n)",)),
        ("e", False, ("d", "range(n)")),
        ("g", True, ("open(p)",)),
        ("h", False, ("g",)),
        ("k", False, ("2",)),
    }


@pytest.mark.parametrize(
    ("body", "names"),
    [
        ("h = cell(x, h)", {"h"}),
        ("y = x; total = total + y", {"total"}),
        ("y = x; y = y * 2", {"y"}),
        ("use(last)\n    last = x", {"last"}),
        ("y = x + 1", set()),
    ],
)
def test_a_loop_carries_what_it_uses_before_it_sets_it_and_what_it_sets_twice(body: str, names: set[str]) -> None:
    assert carried(parsed(f"for x in data:\n    {body}\n").body[0]) == names


def test_what_decides_whether_a_statement_runs_is_above_it() -> None:
    tree = parsed("""
        if a:
            for x in b:
                y = x
        else:
            z = 1
        """)
    by_text = {
        ast.unparse(node): [*map(ast.unparse, of)] for node, of in guarded(tree).items() if isinstance(node, ast.Assign)
    }
    assert by_text == {"y = x": ["a", "b"], "z = 1": ["a"]}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("for x in f(): pass", ["f()"]),
        ("while g(): pass", ["g()"]),
        ("if h(): pass", ["h()"]),
        ("with k(): pass", ["k()"]),
        ("a = b", ["b"]),
        ("a[i] = b", ["b", "a[i]"]),
        ("a += b", ["b", "a"]),
        ("a: int = b", ["b"]),
        ("f(x)", ["f(x)"]),
        ("pass", []),
    ],
)
def test_a_statement_computes_its_own_expressions_and_of_a_block_the_head(text: str, parts: list[str]) -> None:
    statement = statement_at(parsed(text), 1)
    assert statement is not None
    if text.endswith("pass") and text != "pass":
        statement = parsed(text).body[0]
    assert [*map(ast.unparse, computed(statement))] == parts


@pytest.mark.parametrize(
    ("text", "is_object"),
    [
        ("net = make(); y = net(x)", True),
        ("net = make(); net.train()", True),
        ("net = Net()", True),
        ("w = torch.zeros(3, requires_grad=True)", True),
        ("w = torch.zeros(3); opt = torch.optim.SGD([w], 0.1)", True),
        ("w = torch.zeros(3); w.fill_(1)", True),
        ("w = torch.zeros(3); y = w.sum()", False),
    ],
)
def test_what_is_called_trained_or_made_of_a_class_is_no_data(text: str, is_object: bool) -> None:
    assert used_as_object(parsed(text), text.partition(" ")[0]) == is_object


CLASS = parsed("""
    class Net(nn.Module):
        def __init__(self, graph):
            self.graph, self.size = graph, 3
            self.layer = nn.Linear(3, 4)
            self.weight = nn.Parameter(graph)
            self.tied = self.layer.weight
            self.late = None
            self.seen = []
            self.mean = torch.zeros(3)
            self.table = torch.zeros(3)
            self.norm = build()
            self.register_buffer("mask", torch.ones(3))
        def forward(self, x):
            self.late = x
            self.seen.append(x)
            self.mean.mul_(0.9)
            self.table[0] = 1
            return self.norm(x) + self.graph.sum() + self.mask
    """).body[0]


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("graph", True),
        ("size", True),
        ("mask", True),
        ("layer", False),
        ("weight", False),
        ("tied", False),
        ("late", False),
        ("seen", False),
        ("mean", False),
        ("table", False),
        ("norm", False),
        ("unknown", False),
    ],
)
def test_an_attribute_is_kept_if_only_the_making_of_the_object_sets_it(name: str, kept: bool) -> None:
    assert is_kept(CLASS, name) == kept


def test_the_class_of_an_attribute_is_that_of_the_call_that_sets_it() -> None:
    assert class_of(CLASS, ast.parse("self.layer", mode="eval").body) == "Linear"
    assert class_of(CLASS, ast.parse("self.graph", mode="eval").body) == ""


def test_imported_names_have_their_full_names() -> None:
    text = "import numpy as np, os.path\nfrom torch.nn import functional as F\nfrom .own import f\n"
    assert imports(parsed(text)) == {"np": "numpy", "os": "os", "F": "torch.nn.functional", "f": "own.f"}


def test_a_class_gives_its_objects_what_its_body_sets() -> None:
    cls = parsed("""
        class Config:
            size = 224
            rate: int = 16000
            name: str
            def __init__(self):
                self.width = 3
            def grow(self):
                self.width += 1
        """).body[0]
    assert is_kept(cls, "size") and is_kept(cls, "rate") and is_kept(cls, "name")
    assert touches(cls, "width") and not is_kept(cls, "width") and not touches(cls, "depth")


def test_what_a_file_changes_on_other_objects_and_of_its_globals() -> None:
    tree = parsed("""
        SEEN, KNOWN, LEVEL, OWN = [], {}, 0, []
        OWN.append(1)
        def train(self, data):
            global LEVEL
            LEVEL += 1
            data.epoch = 3
            data.inner.items.append(4)
            self.mine = 5
            setattr(data, "level", 6)
            KNOWN["a"] = 7
            SEEN.append(8)
            local = []
            local.append(9)
        """)
    assert changed_on_objects(tree) == {"epoch", "items", "level"}
    assert changed_globals(tree) == {"LEVEL", "KNOWN", "SEEN"}
