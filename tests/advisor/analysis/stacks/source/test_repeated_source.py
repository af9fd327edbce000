"""From the source of the functions on a stack to the place where the work of its innermost line could be done once for all steps."""

from __future__ import annotations

import textwrap

import pytest

from rn50_advisor.advisor.analysis.stacks.source.repeated_source import repeated_work
from rn50_advisor.advisor.analysis.stacks.source.same_values import Entered, Entry
from rn50_advisor.advisor.model.recording import Source

FILE = "/job/train.py"
IMPORTS = (
    "import math, random\nimport numpy as np\nimport torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
)


def at(text: str, part: str) -> int:
    (line,) = [n for n, words in enumerate(text.splitlines(), 1) if part in words]
    return line


def place(text: str, *stack: tuple[str, str, Entered], more: tuple[Source, ...] = ()) -> str | None:
    """The words at the place that is found. `stack`: (function, words of its line, how it was entered), outermost first."""
    entries = [Entry(FILE, at(text, words), function, how) for function, words, how in stack]
    backwards = {(FILE, "train"): frozenset({at(text, "loss.backward()")})}
    found = repeated_work((Source(FILE, "", text), *more), entries, backwards)
    return None if found is None else text.splitlines()[found.line - 1].strip()


def in_loop(line: str, before: str = "", after: str = "") -> bool:
    """True if a line of a training loop computes the same in every step. `before`: lines above the loop; `after`: below it."""
    text = IMPORTS + textwrap.dedent("""\
        def train(model, loader, adjacency, config):
            optimizer = torch.optim.SGD(model.parameters(), 0.1)
            counts = [3, 4, 5]
            {before}
            for step, (x, y) in enumerate(loader):
                {line}  # here
                loss = model(x, y)
                loss.backward()
                optimizer.step()
                {after}
        """).format(line=line, before=before or "pass", after=after or "pass")
    return place(text, ("train", "# here", "called")) is not None


@pytest.mark.parametrize(
    "line",
    [
        "weights = torch.tensor(counts).float()",
        "weights = 1.0 / torch.tensor(counts, dtype=torch.float32, device=x.device).pow(0.5)",
        "mask = torch.triu(torch.ones(x.size(1), x.shape[1]), diagonal=1).bool()",
        "table = np.sin(np.arange(len(x))[:, None] / 10000 ** np.linspace(0, 1, config.width))",
        "degree = (adjacency / adjacency.sum(1, keepdim=True)).masked_fill_(adjacency == 0, -1.0)",
        "rows = [math.sqrt(n) for n in counts if n > 3]",
        "edges = sorted({(a, b): 1 for a in counts for b in counts}.items())",
        "zeros = torch.zeros_like(x)",
        "name = f'{config.name}-{len(counts)}'",
    ],
)
def test_what_uses_nothing_of_the_step_is_the_same_in_each(line: str) -> None:
    assert in_loop(line)


@pytest.mark.parametrize(
    "line",
    [
        "x = x.float()",
        "mask = x > 0",
        "mask = torch.arange(9)[None] < y[:, None]",
        "noise = torch.randn(3, 4)",
        "noise = torch.zeros(3).uniform_()",
        "kept = F.dropout(adjacency, 0.5)",
        "order = np.random.permutation(9)",
        "chosen = random.sample(counts, 2)",
        "chosen = torch.distributions.Normal(0.0, 1.0).sample()",
        "layer = nn.Linear(3, 4)",
        "late = torch.ones(step + 1)",
        "out = model(adjacency)",
        "norm = torch.cat([p.flatten() for p in model.parameters()]).norm()",
        "state = optimizer.state_dict()",
        "item = config.next_item()",
        "words = str(unknown)",
        "run = lambda: counts",
        "table = torch.load(config.path)",
    ],
)
def test_what_may_differ_from_step_to_step_is_not(line: str) -> None:
    assert not in_loop(line)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("total = torch.zeros(3)", "total += y.sum()"),
        ("total = torch.zeros(3)", "total[0] = y.sum()"),
        ("total = torch.zeros(3)", "total.add_(y.sum())"),
        ("total = torch.zeros(3)", "total = total * 0.9"),
        ("total = []", "total.append(y)"),
        ("total = torch.zeros(3, requires_grad=True)", ""),
        ("total = nn.Parameter(torch.zeros(3))", ""),
        ("total = torch.zeros(3); optimizer = torch.optim.Adam([total])", ""),
        ("total = torch.zeros(3).requires_grad_()", ""),
    ],
)
def test_what_the_loop_changes_or_trains_is_not_the_same(before: str, after: str) -> None:
    assert not in_loop("out = torch.sort(total)", before, after)
    assert in_loop("out = torch.sort(total)", "total = torch.zeros(3)")


@pytest.mark.parametrize(
    ("fill", "same"),
    [
        ("collect(loader, kept)", False),
        ("collect(into=kept, source=loader)", False),
        ("collect(kept, loader)", True),
        ("unknown(kept)", True),
        ("model.store(kept)", False),
        ("kept.sum(kept)", True),
        ("torch.sum(kept)", True),
    ],
)
def test_what_a_function_of_the_loop_may_change_in_place_is_not_the_same(fill: str, same: bool) -> None:
    text = IMPORTS + textwrap.dedent("""\
        def collect(source, into):
            into[0] = source.next()

        def train(model, loader):
            kept = torch.zeros(3)
            for x in loader:
                FILL
                weights = kept / kept.sum()  # here
                loss = model(x, weights)
                loss.backward()
        """).replace("FILL", fill)
    assert (place(text, ("train", "# here", "called")) is not None) == same


MODEL = IMPORTS + textwrap.dedent("""\
    def band(length, width):
        mask = torch.zeros(length, length)
        for i in range(length):
            for j in range(length):
                mask[i, j] = float(abs(i - j) > width)  # filled
        return mask

    class Block(nn.Module):
        def __init__(self, size, adjacency, heads):
            super().__init__()
            self.heads, self.size = heads, size
            self.adjacency = adjacency
            self.norm = nn.LayerNorm(size)
            self.weight = nn.Parameter(torch.ones(size))
            self.seen = torch.zeros(size)
            self.cache = None
            self.register_buffer("grid", torch.linspace(0, 1, size))

        def positions(self, length):
            return torch.arange(length)[:, None] * self.grid  # positions

        def forward(self, x, bias, scale=1.0):
            b, t, c = x.shape
            mask = band(t, self.heads)  # band
            where = x + self.positions(t)  # added
            degree = self.adjacency.sum(1).pow(-0.5)  # degree
            kernel = torch.exp(-self.grid ** 2 * scale)  # kernel
            weight = torch.softmax(self.weight, 0)  # weight
            seen = self.seen / self.seen.sum()  # seen
            cache = torch.sort(self.cache)  # cache
            moved = torch.sort(bias)  # bias
            self.seen.mul_(0.9)
            self.cache = degree
            return self.norm(where).masked_fill(mask.bool(), 0.0)  # out

    class Net(nn.Module):
        def __init__(self, adjacency):
            super().__init__()
            self.first = Block(8, adjacency, 2)
            self.last = nn.Linear(8, 8)

        def forward(self, x, bias):
            return self.last(self.first(x, bias))  # blocks

    def train(model, loader, adjacency):
        bias = torch.ones(8)
        for x in loader:
            loss = model(x, bias).sum()  # model
            loss.backward()
    """)
BLOCK: tuple[tuple[str, str, Entered], ...] = (
    ("train", "# model", "called"),
    ("Net.forward", "# blocks", "as a module"),
)


@pytest.mark.parametrize(
    ("words", "same"),
    [
        ("# band", True),
        ("# degree", True),
        ("# kernel", True),
        ("# bias", True),
        ("# added", False),
        ("# weight", False),
        ("# seen", False),
        ("# cache", False),
        ("# out", False),
    ],
)
def test_in_a_model_the_shape_of_the_batch_and_what_never_changes_are_the_same(words: str, same: bool) -> None:
    found = place(MODEL, *BLOCK, ("Block.forward", words, "as a module"))
    assert (found is not None and words in found) == same


def test_the_place_is_the_outermost_call_that_could_be_made_once() -> None:
    forward: tuple[str, str, Entered] = ("Block.forward", "# band", "as a module")
    assert place(MODEL, *BLOCK, forward, ("band", "# filled", "called")) == "mask = band(t, self.heads)  # band"
    added: tuple[str, str, Entered] = ("Block.forward", "# added", "as a module")
    assert (
        place(MODEL, *BLOCK, added, ("Block.positions", "# positions", "called"))
        == "where = x + self.positions(t)  # added"
    )


def test_nothing_is_known_of_what_a_function_is_given_that_something_else_calls() -> None:
    assert place(MODEL, *BLOCK, ("Block.forward", "# bias", "otherwise")) is None
    assert place(MODEL, *BLOCK, ("Block.forward", "# degree", "otherwise")) is not None


def test_what_the_loop_goes_through_does_not_matter() -> None:
    text = MODEL.replace("for x in loader:", "for x in model.batches():")
    assert place(text, *BLOCK, ("Block.forward", "# bias", "as a module")) is not None
    text = MODEL.replace("for x in loader:", "while (x := model.next()) is not None:")
    assert place(text, *BLOCK, ("Block.forward", "# bias", "as a module")) is not None


@pytest.mark.parametrize("around", ["for epoch in range(9):", "while True:"])
def test_the_head_of_the_training_loop_takes_another_batch_each_time(around: str) -> None:
    text = IMPORTS + textwrap.dedent(f"""\
        def train(model, loader, adjacency):
            {around}
                for x in loader:  # head
                    degree = adjacency.sum(1)  # here
                    loss = model(x, degree)
                    loss.backward()
        """)
    assert place(text, ("train", "# head", "called")) is None
    assert place(text, ("train", "# here", "called")) is not None


def test_without_a_loop_or_a_source_nothing_is_found() -> None:
    assert place(MODEL, ("Net.forward", "# blocks", "called"), ("Block.forward", "# degree", "as a module")) is None
    entries = [Entry(FILE, at(MODEL, "# model"), "train", "called"), Entry("/job/other.py", 3, "f", "called")]
    backwards = {(FILE, "train"): frozenset({at(MODEL, "loss.backward()")})}
    assert repeated_work((Source(FILE, "", MODEL),), entries, backwards) is None
    assert repeated_work((Source(FILE, "", MODEL, edited=True),), entries[:1], backwards) is None


def test_a_function_of_another_file_is_known_if_its_source_is() -> None:
    text = (
        IMPORTS
        + "from lib.masks import causal\n"
        + textwrap.dedent("""\
        def train(model, loader):
            for x in loader:
                mask = causal(x.size(1)).float()  # here
                loss = model(x, mask)
                loss.backward()
        """)
    )
    other = "import torch\ndef causal(n):\n    return torch.ones(n, n).tril()\n"
    stack: tuple[str, str, Entered] = ("train", "# here", "called")
    assert place(text, stack) is None
    assert place(text, stack, more=(Source("/job/lib/masks.py", "", other),)) is not None
    drawn = other.replace("ones", "rand")
    assert place(text, stack, more=(Source("/job/lib/masks.py", "", drawn),)) is None
