"""From a profile and the source to loops that compute the same positions again in each iteration."""

from __future__ import annotations

import pytest

from profiled_steps import MODULE, SCRIPT, looks, profiled
from rn50_advisor.advisor.analysis.stacks.avoidable.prefix_lines import hands_on_prefix
from rn50_advisor.advisor.model.recording import Source

# source, the line of the call
AGAIN = {
    "cat": ("for _ in range(n):\n    s = net(ids)\n    ids = torch.cat([ids, s[:, -1:].argmax(-1)], 1)\n", 2),
    "while": ("while len(out) < n:\n    s = model(x)\n    x = torch.cat((x, s[:, -1:]), dim=1)\n", 2),
    "a window": (
        "for _ in range(n):\n    part = ids if ids.size(1) < 64 else ids[:, -64:]\n    s, _ = self(part)\n"
        "    ids = torch.cat((ids, s), dim=1)\n",
        3,
    ),
    "in one line": ("for _ in range(n):\n    ids = torch.cat([ids, net(ids)[:, -1:].argmax(-1)], 1)\n", 2),
    "by way of a name": (
        "for _ in range(n):\n    s = net(ids)\n    last = s[:, -1:]\n    ids = torch.cat([ids, last], 1)\n",
        2,
    ),
    "a list": ("for _ in range(n):\n    s = model(torch.tensor([tokens]))\n    tokens.append(int(s.argmax()))\n", 2),
    "by name": ("for _ in range(n):\n    s = model(input_ids=ids).logits\n    ids = torch.cat([ids, s], 1)\n", 2),
    "attention to what is known": (
        "for t in range(n):\n    h = self.layer(ys, memory)\n    ys = torch.cat([ys, h[:, -1:]], 1)\n",
        2,
    ),
}
ONCE = {
    "the last position": (
        "for _ in range(n):\n    s, h = net(ids[:, -1:], h)\n    ids = torch.cat([ids, s.argmax(-1)], 1)\n",
        2,
    ),
    "the state alone": ("for _ in range(n):\n    s, h = net(last, h)\n    out.append(s)\n", 2),
    "the loop that trains": (
        "for x in data:\n    loss = net(x, torch.stack(seen)).sum()\n    loss.backward()\n    seen.append(x)\n",
        2,
    ),
    "no loop": ("s = net(ids)\nids = torch.cat([ids, s], 1)\n", 1),
    "something else grows": ("for x in data:\n    y = net(x)\n    out = torch.cat([out, y])\n", 2),
    "its device": ("for _ in range(n):\n    h = net(last.to(ids.device))\n    ids = torch.cat([ids, h], 1)\n", 2),
    "a layer of a dense network": ("for layer in self.layers:\n    x = torch.cat([x, layer(x)], 1)\n", 2),
    "its layers by number": ("for i in range(n):\n    y = self.layers[i](torch.cat(xs, 1))\n    xs.append(y)\n", 2),
    "a memory of something else": (
        "for x in parts:\n    y = net(x, memory)\n    memory = torch.cat([memory, encode(x)])\n",
        2,
    ),
    "what only joins": ("for x in data:\n    out = torch.cat([out, x])\n", 2),
    "made anew": ("for x in data:\n    y = torch.cat([x, x])\n    z = net(y)\n", 3),
}


@pytest.mark.parametrize(("text", "line"), AGAIN.values(), ids=AGAIN)
def test_a_loop_that_hands_on_all_it_has_made_longer(text: str, line: int) -> None:
    assert hands_on_prefix((Source(SCRIPT, "", text),), SCRIPT, line)


@pytest.mark.parametrize(("text", "line"), ONCE.values(), ids=ONCE)
def test_a_loop_that_does_not(text: str, line: int) -> None:
    assert not hands_on_prefix((Source(SCRIPT, "", text),), SCRIPT, line)


SOURCE = """\
def sample(net, n):
    for _ in range(n):
        scores = net(ids)
        ids = torch.cat([ids, scores[:, -1:].argmax(-1)], 1)
    return ids

def train():
    for x in loader:
        drawn = sample(net, 20)
        loss = net(drawn).sum()
        loss.backward()
"""


def test_its_line_and_its_seconds() -> None:
    call = looks(80, ("train", SCRIPT, 9), ("sample", SCRIPT, 3), MODULE)
    joining = looks(20, ("train", SCRIPT, 9), ("sample", SCRIPT, 4))
    a = profiled(call, joining, source=SOURCE, model=10, backward=11)
    (line,) = a.prefix_lines
    assert (line.line, line.function, line.samples) == (3, "sample", 80)
    assert 1000 * a.value("step.prefix_s", 0) == pytest.approx(26.0)


def test_without_the_source_it_is_not_known() -> None:
    a = profiled(
        looks(80, ("train", SCRIPT, 9), ("sample", SCRIPT, 3), MODULE), source="", model=10, backward=11, sources=()
    )
    assert "source" in dict(a.reasons)["step.prefix_s", 0]
