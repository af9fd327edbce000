"""From the source of functions on a stack to loops whose iterations do not depend on each other, and to the operations of lines."""

from __future__ import annotations

import ast
import textwrap

import pytest

from rn50_advisor.advisor.analysis.stacks.source.independent_source import (
    chained_loop,
    independent_loop,
    operations_at,
)
from rn50_advisor.advisor.analysis.stacks.source.same_values import Entry
from rn50_advisor.advisor.model.recording import Source

FILE = "/job/loss.py"
LINE = "HERE"


@pytest.mark.parametrize(
    ("call", "grows"),
    [
        ("decode(y[:, :t], x)", True),
        ("decode(x, words=y[: t + 1])", True),
        ("decode(x[:, t], y)", False),
        ("decode(x[:, t : t + 1])", False),
        ("decode(x[:, :9])", False),
    ],
)
def test_an_iteration_that_goes_through_all_before_it(call: str, grows: bool) -> None:
    text = f"def forward(x, y):\n    out = []\n    for t in range(9):\n        out.append({call})\n    return out\n"
    loop = independent_loop([Source(FILE, "", text)], [Entry(FILE, 4, "forward", "called")], {})
    assert loop is not None and loop.grows == grows


def found(body: str, *, called: str = "", backwards: tuple[int, ...] = ()) -> int | None:
    """The line of the loop around the line that ends with a comment HERE, or around the call of the function `called`."""
    text = "def loss(x, y, heads, model):\n" + textwrap.indent(textwrap.dedent(body).strip(), "    ") + "\n"
    if called:
        text += textwrap.dedent(called)
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines, 1) if LINE in line)
    entries = [Entry(FILE, at, "loss", "called")]
    if called:
        inner = next(n for n, line in enumerate(lines, 1) if "THERE" in line)
        entries.append(Entry(FILE, inner, "inner", "called"))
    loop = independent_loop([Source(FILE, "", text)], entries, {(FILE, "loss"): frozenset(backwards)})
    return None if loop is None else loop.line


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("total = 0.0\nfor j in range(9):\n    total += f(x[:, j], y[:, j])  # HERE", id="a sum"),
        pytest.param(
            "total = 0.0\nfor j in range(9):\n    total = total + f(x[j]) + g(x[j])  # HERE", id="a written sum"
        ),
        pytest.param("total = 0.0\nfor j in range(9):\n    total = f(x[j]) + total  # HERE", id="a sum the other way"),
        pytest.param(
            "parts = []\nfor a, b in zip(x, y):\n    d = a - b\n    parts.append(d.norm())  # HERE", id="a list"
        ),
        pytest.param("out = y\nfor i in range(9):\n    out[i, :3] = x[i].mean(0)  # HERE", id="a tensor"),
        pytest.param("out = y\nfor i in range(9):\n    out[i] += x[i].mean(0)  # HERE", id="a tensor's part"),
        pytest.param(
            "for i in range(9):\n    if w[i] < 0:\n        continue\n    d = f(x[i])\n    y.add_(d)  # HERE",
            id="left out at times",
        ),
        pytest.param(
            "for i in range(9):\n    rows = []\n    for j in range(9):\n        rows.append(x[i] @ y[j])  # HERE\n    s = stack(rows)",
            id="two loops",
        ),
        pytest.param(
            "for i in range(9):\n    h = y\n    for t in range(9):\n        h = cell(x[i, t], h)  # HERE\n    out.append(h)",
            id="a sequence for each sample",
        ),
        pytest.param("out = y\nparts = [f(x[i]) for i in range(9)]  # HERE", id="a comprehension"),
        pytest.param("out = y\nreturn sum(f(a, b) for a, b in zip(x, y)) / 9  # HERE", id="a generator"),
    ],
)
def test_iterations_that_only_add_up_are_independent(body: str) -> None:
    first = next(n for n, line in enumerate(body.splitlines(), 2) if "for" in line)
    assert found(body) == first


@pytest.mark.parametrize(
    "body",
    [
        pytest.param("h = y\nfor t in range(9):\n    h = cell(x[t], h)  # HERE", id="a recurrence"),
        pytest.param("for layer in heads:\n    x = layer(x)  # HERE", id="layers in turn"),
        pytest.param("outs = [y]\nfor t in range(9):\n    outs.append(f(outs[-1]))  # HERE", id="the last of a list"),
        pytest.param("for t in range(1, 9):\n    y[t] = y[t - 1] * x[t]  # HERE", id="the last of a tensor"),
        pytest.param("best = 0.0\nfor i in range(9):\n    best = max(best, f(x[i]))  # HERE", id="more than a sum"),
        pytest.param(
            "total = 0.0\nfor i in range(9):\n    total += f(x[i])  # HERE\n    if total > 3:\n        break",
            id="an early end",
        ),
        pytest.param("for i in range(9):\n    model.state = f(x[i])  # HERE", id="what an object keeps"),
        pytest.param("total = 0.0\nfor i in range(9):\n    total += f(x[i], total)  # HERE", id="a sum that is used"),
        pytest.param("for t in range(9):\n    h: T = cell(x[t], h)  # HERE", id="an annotated recurrence"),
        pytest.param("for t in range(9):\n    f(h := cell(x[t], h))  # HERE", id="a recurrence within an expression"),
        pytest.param(
            "for t in range(9):\n    model.states.append(cell(x[t], model.states[-1]))  # HERE", id="what a model keeps"
        ),
        pytest.param("while y > 0:\n    y = f(y)  # HERE", id="while"),
        pytest.param("for i in range(9):\n    yield f(x[i])  # HERE", id="a generator function"),
        pytest.param("total = f(x)  # HERE", id="no loop"),
        pytest.param("xs = [a for a in x]\ntotal = f(xs)  # HERE", id="beside a loop"),
    ],
)
def test_iterations_that_depend_on_each_other_are_none(body: str) -> None:
    assert found(body) is None


def test_a_loop_that_trains_is_none() -> None:
    body = "for i in range(9):\n    out = f(x[i])  # HERE\n    out.backward()"
    assert found(body) == 2
    assert found(body, backwards=(4,)) is None


def test_what_the_loop_calls_may_keep_nothing() -> None:
    body = "for i in range(9):\n    out.append(self.inner(x[i]))  # HERE"
    assert found(body, called="def inner(self, x):\n    return x.mean()  # THERE\n") == 2
    assert found(body, called="def inner(self, x):\n    self.seen = x\n    return x.mean()  # THERE\n") is None
    assert found(body, called="def inner(self, x):\n    self.seen.append(x)\n    return x.mean()  # THERE\n") is None


@pytest.mark.parametrize(
    ("line", "over"),
    [
        ("parts = [head(x) for head in heads]", "modules"),
        ("parts = [self.heads[i](x) for i in range(9)]", "modules"),
        ("parts = [f(x[i]) for i in range(9)]", "data"),
        ("total = sum(w * f(a) for w, a in zip(weights, x))", "data"),
        ("penalty = sum(p.norm() for p in model.parameters())", "parameters"),
        ("penalty = sum(p.pow(3).sum() for p in model.parameters())", "parameters"),
        ("penalty = sum(p.pow(2).sum() for p in model.parameters())", "squares"),
        ("penalty = sum(p.square().sum() for p in model.parameters())", "squares"),
        ("penalty = sum((p ** 2).sum() for _, p in model.named_parameters())", "squares"),
        ("penalty = sum(torch.norm(p) ** 2 for p in model.parameters())", "squares"),
    ],
)
def test_it_is_known_what_the_loop_goes_through(line: str, over: str) -> None:
    source = Source(FILE, "", f"def loss(self, x, heads, model):\n    {line}\n")
    loop = independent_loop([source], [Entry(FILE, 2, "loss", "called")], {})
    assert loop is not None and loop.over == over


@pytest.mark.parametrize(
    ("line", "operations"),
    [
        ("total += F.mse_loss(x[:, j + 1], y[:, j])", {("add",): 1, ("mseloss",): 1, ("select", "slice", "index"): 2}),
        ("d = -(a - b) ** 2 @ c", {("neg",): 1, ("sub", "rsub"): 1, ("pow",): 1, ("mm", "bmm", "mv", "dot"): 1}),
        ("p = F.cross_entropy(a, b) * 2", {("nllloss", "nllloss2d"): 1, ("mul",): 1}),
        ("for i in range(9): pass", {}),
    ],
)
def test_the_operations_of_a_line_have_their_names_in_the_graph(
    line: str, operations: dict[tuple[str, ...], int]
) -> None:
    function = ast.parse(f"def loss(a, b, c, x, y, j):\n    {line}\n").body[0]
    assert operations_at(function, 2) == operations


@pytest.mark.parametrize(
    ("loop", "chained"),
    [
        pytest.param("for _ in range(9):\n    x = x - f(x)", True, id="a solver"),
        pytest.param("for t in reversed(range(9)):\n    x = x - f(x, t / 9)", True, id="a sampler that knows its time"),
        pytest.param("for _ in range(9):\n    h = cell(y, h)\n    y = out(h)", True, id="a cell with its own output"),
        pytest.param("while error > 0.1:\n    x = f(x)\n    error = g(x)", True, id="until it is good enough"),
        pytest.param("for layer in layers:\n    x = layer(x)", True, id="one layer after another"),
        pytest.param("for t in range(9):\n    h = cell(x[:, t], h)", False, id="a cell along a sequence"),
        pytest.param(
            "t = 0\nwhile t < 9:\n    h = cell(x[:, t], h)\n    t += 1", False, id="the same, counted by hand"
        ),
        pytest.param("for step in x.unbind(1):\n    h = cell(step, h)", False, id="a cell along parts"),
        pytest.param("for _ in range(9):\n    h = cell(y, h)\n    g(h)", False, id="a cell with the same input"),
        pytest.param("for _ in range(9):\n    h = cell(next(parts), h)", False, id="a cell along an iterator"),
        pytest.param("for _ in range(9):\n    total += f(torch.randn(4))", False, id="a sum"),
        pytest.param("for _ in range(9):\n    found.append(f(x))\n    n += 1\n    g(n)", False, id="a counter alone"),
        pytest.param(
            "for _ in range(9):\n    x = torch.stack([f(s) for s in x])",
            False,
            id="a comprehension in it",
        ),
        pytest.param(
            "for _ in range(9):\n    for s in states:\n        f(s)\n    states = g(states)",
            False,
            id="one sample at a time in it",
        ),
    ],
)
def test_iterations_that_go_on_from_the_last_result_alone(loop: str, chained: bool) -> None:
    text = (
        "def forward(x, h, y, layers, states, found, total, n):\n" + textwrap.indent(loop, "    ") + "\n    return x\n"
    )
    calls = [
        n
        for n, line in enumerate(text.splitlines(), 1)
        if "(" in line and not line.strip().startswith("for ") and n > 1
    ]
    entry = Entry(FILE, calls[0], "forward", "called")
    first = next(n for n, line in enumerate(text.splitlines(), 1) if "for " in line or "while " in line)
    found = chained_loop([Source(FILE, "", text)], [entry], {})
    assert found == ((FILE, first, "forward") if chained else None)
    assert chained_loop([Source(FILE, "", text)], [entry], {(FILE, "forward"): frozenset([calls[0]])}) is None, (
        "it trains"
    )
