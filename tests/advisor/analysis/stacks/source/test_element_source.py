"""Which loops handle elements one by one: numbers made of elements, and elements by several indices."""

from __future__ import annotations

import textwrap

import pytest

from rn50_advisor.advisor.analysis.stacks.source.element_source import element_loop
from rn50_advisor.advisor.model.recording import Source

FILE = "/job/train.py"


def loop_of(
    body: str, line: int = 3, head: str = "for t in targets:", beside: frozenset[int] = frozenset()
) -> int | None:
    text = f"def assign(targets):\n    {head}\n{textwrap.indent(textwrap.dedent(body), ' ' * 8)}\n    return found\n"
    return element_loop((Source(FILE, "", text),), FILE, line, beside)


@pytest.mark.parametrize(
    "body",
    [
        "found[t.item()] = 1",
        "n += boxes[t].item()",
        "b = int(t[0])",
        "w = float(boxes[t]) * 2",
        "mask[b, best, y, x] = True",
        "for k in t:\n    n += k.item()",
        "if ious[t, k] > 0.5:\n    n += 1",
        "table[t][k] += 1",
        "for k in range(9):\n    table[t, k] = 0",
    ],
)
def test_loops_over_elements(body: str) -> None:
    assert loop_of(body) == 2


@pytest.mark.parametrize(
    "body",
    [
        "x = layer(x)",
        "loss = loss + criterion(out[t], target[t])",
        "outputs[:, t] = h",
        "rows[t] = h",
        "x = x[..., t]",
        "x = x[None, t]",
        "meters[t]['loss'] += 1",
        "x = image[0, 0]",
        "n += len(t)",
        "x = int(n)",
        "file.write(f'loss {loss.item()}')",
        "norms.append(t.norm().item())",
        "def inner(x):\n    return x.item()",
        "found = [lambda x: x[i, j]]",
    ],
)
def test_loops_over_whole_tensors(body: str) -> None:
    assert loop_of(body) is None


def test_the_outermost_loop_that_leaves_out_the_lines_beside_it() -> None:
    body = "for k in range(9):\n    table[t, k] = 0\nloss.backward()"
    assert loop_of(body, 4) == 2 and loop_of(body, 4, beside=frozenset({5})) == 3
    assert loop_of(body, 5, beside=frozenset({5})) is None


def test_while_loops_and_what_is_outside() -> None:
    assert loop_of("x[n].item()", head="while True:") == 2
    assert loop_of("x.item()", head="while True:") is None
    assert loop_of("t.item()", line=4) is None
    assert element_loop((), FILE, 3) is None
