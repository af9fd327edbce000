"""From a profile and the source to loops that copy all of their results so far in each iteration."""

from __future__ import annotations

import pytest

from profiled_steps import MODULE, SCRIPT, looks, profiled
from rn50_advisor.advisor.analysis.stacks.avoidable.joined_lines import joins_all_so_far
from rn50_advisor.advisor.model.recording import Source

# source, the line that joins
AGAIN = {
    "cat": ("for t in range(n):\n    out = torch.cat([out, net(t)], dim=1)\n", 2),
    "the new part first": ("while more:\n    out = torch.cat((net(x), out))\n", 2),
    "an attribute": ("for x in parts:\n    self.seen = torch.cat([self.seen, x])\n", 2),
    "numpy": ("for x in parts:\n    all_x = np.concatenate([all_x, x])\n", 2),
    "np.append": ("for x in parts:\n    scores = np.append(scores, f(x))\n", 2),
    "a table": ("for x in parts:\n    df = pd.concat([df, row(x)], ignore_index=True)\n", 2),
    "the loop that trains": (
        "for x in data:\n    net(x).sum().backward()\n    seen = torch.cat([seen, x])\nplot(seen)\n",
        3,
    ),
}
ONCE = {
    "it is read": ("for _ in range(n):\n    s = net(ids)\n    ids = torch.cat([ids, s], 1)\n", 3),
    "its length is": ("while len(out) < n:\n    out = torch.cat([out, net(x)])\n", 2),
    "it is made anew": ("for x in parts:\n    out = x\n    out = torch.cat([out, y])\n", 3),
    "a list": ("for x in parts:\n    out.append(net(x))\n", 2),
    "no loop": ("out = torch.cat([out, x])\n", 1),
    "another name": ("for x in parts:\n    both = torch.cat([x, y])\n", 2),
    "a method of its own": ("for x in parts:\n    out = self.append(out, x)\n", 2),
}


@pytest.mark.parametrize(("text", "line"), AGAIN.values(), ids=AGAIN)
def test_a_loop_that_only_makes_it_longer(text: str, line: int) -> None:
    assert joins_all_so_far((Source(SCRIPT, "", text),), SCRIPT, line)


@pytest.mark.parametrize(("text", "line"), ONCE.values(), ids=ONCE)
def test_other_joins(text: str, line: int) -> None:
    assert not joins_all_so_far((Source(SCRIPT, "", text),), SCRIPT, line)


SOURCE = """\
class Net:
    def forward(self, x):
        out = x[:, :0]
        for t in range(9):
            x = self.cell(x)
            out = torch.cat([out, x], 1)
        return out

def train():
    for x, y in loader:
        out = net(x)
        out.sum().backward()
"""


def test_the_samples_of_the_line_that_joins() -> None:
    forward = ("train", SCRIPT, 11), MODULE
    a = profiled(
        looks(60, *forward, ("Net.forward", SCRIPT, 6)),
        looks(20, *forward, ("Net.forward", SCRIPT, 5)),
        source=SOURCE,
        model=11,
        backward=12,
    )
    (line,) = a.joined_lines
    assert (line.line, line.function, line.samples) == (6, "Net.forward", 60)
    assert a.value("step.joined_s", 0) > 0
