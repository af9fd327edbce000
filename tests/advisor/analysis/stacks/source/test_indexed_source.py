"""From the source: which expression takes a part by a loop's counter, and which takes rows by a tensor."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.stacks.source.indexed_source import part_line, takes_rows
from rn50_advisor.advisor.model.recording import Source

SCRIPT = "/job/train.py"


def source(text: str) -> tuple[Source, ...]:
    return (Source(SCRIPT, "", text),)


# text, a line of the loop's body, the line that takes the part
PARTS = {
    "a time step": ("for t in range(T):\n    h = cell(x[:, t], h)\n    y = f(h)\n", 3, 2),
    "a window": ("for i in range(n):\n    w.append(z[:, :, i * 32 : (i + 1) * 32])\n", 2, 2),
    "a place that is computed first": ("for i in range(n):\n    at = i * 32\n    w.append(z[:, at : at + 32])\n", 2, 3),
    "a sample": ("for b in range(B):\n    out.append(net(x[b]))\n", 2, 2),
    "what a loop goes through": ("for start, end in spans:\n    pooled.append(h[start:end].mean(0))\n", 2, 2),
    "an output": ("for t, part in enumerate(parts):\n    h = cell(part, h)\n    out[:, t] = h\n", 2, 3),
    "select": ("for t in range(T):\n    h = cell(x.select(1, t), h)\n", 2, 2),
    "while": ("while t < T:\n    h = cell(x[:, t], h)\n    t += 1\n", 2, 2),
    "a comprehension": ("y = torch.stack([\n    f(x[:, t]) for t in range(T)])\n", 2, 2),
}


@pytest.mark.parametrize(("text", "inside", "line"), PARTS.values(), ids=PARTS)
def test_parts_by_a_counter(text: str, inside: int, line: int) -> None:
    assert part_line(source(text), SCRIPT, inside) == line


@pytest.mark.parametrize(
    "text",
    [
        "for layer in layers:\n    x = layer(x[:, 0])\n",
        "for i in range(n):\n    x = self.layers[i](x)\n",
        "for x, y in loader:\n    loss = net(x)\n",
        "h = cell(x[:, t], h)\n",
    ],
)
def test_no_parts(text: str) -> None:
    assert part_line(source(text), SCRIPT, len(text.splitlines())) is None


def test_the_inner_loop_comes_first_and_slices_before_elements() -> None:
    text = "for x, y in loader:\n    for t in range(T):\n        h = states[t]\n        h = cell(x[:, t], h)\n    n = x[y]\n"
    assert part_line(source(text), SCRIPT, 3) == 4
    assert part_line(source(text), SCRIPT, 5) == 4, "the loop over batches has the other one in it"


@pytest.mark.parametrize("text", ["m = h[src]\n", "m = h[self.src]\n", "m = x[:, order]\n", "m = h[e[0]]\n"])
def test_rows_by_a_tensor(text: str) -> None:
    assert takes_rows(source(text), SCRIPT, 1)


@pytest.mark.parametrize(
    "text",
    [
        "m = h[0]\n", "m = x[:, -1]\n", "m = batch['x']\n", "h[src] = m\n", "m = x[..., None]\n",
        "m = h[mask]\n", "m = h[y != -100]\n", "m = h[x > 0]\n", "m = h[~padded]\n", "m = x[rows, positions]\n",
    ],
)  # fmt: skip
def test_no_rows(text: str) -> None:
    assert not takes_rows(source(text), SCRIPT, 1)


def test_a_counter_is_no_tensor() -> None:
    assert not takes_rows(source("for t in range(T):\n    h = cell(x[:, t], h)\n"), SCRIPT, 2)


def test_without_its_source_nothing_is_known() -> None:
    assert part_line((), SCRIPT, 1) is None and not takes_rows((), SCRIPT, 1)
