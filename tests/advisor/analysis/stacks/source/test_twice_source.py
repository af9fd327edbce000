"""From a line to the earlier one of its function that has computed the same already."""

from __future__ import annotations

import textwrap

import pytest

from rn50_advisor.advisor.analysis.stacks.source.twice_source import computed_before
from rn50_advisor.advisor.model.recording import Source

FILE = "/job/train.py"
IMPORTS = "import torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
MODEL = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x):
        return self.head(F.relu(self.body(x)))


def accuracy(logits, y):
    return (logits.argmax(1) == y).float().mean().item()


"""


def first(text: str, *, as_module: bool, model: str = MODEL) -> str | None:
    """The words of the line that is found for the one marked `# here`."""
    text = IMPORTS + model + textwrap.dedent(text)
    (here,) = [n for n, words in enumerate(text.splitlines(), 1) if "# here" in words]
    found = computed_before((Source(FILE, "", text),), FILE, here, as_module=as_module)
    return None if found is None else text.splitlines()[found.line - 1].strip()


def step(
    line: str, before: str = "logits = model(x)", between: str = "loss = F.cross_entropy(logits, y)"
) -> str | None:
    """The same in a training loop whose line is in a module that it calls."""
    text = f"""\
        def train(model, teacher, loader, optimizer):
            for x, y in loader:
                {before}
                {between}
                {line}  # here
                loss.backward()
                optimizer.step()
        """
    return first(text, as_module=True)


@pytest.mark.parametrize(
    "line",
    [
        "acc = accuracy(model(x), y)",
        "preds = model(x).argmax(dim=1)",
        "right += (model(x).argmax(1) == y).float().sum().item()",
        "penalty = F.mse_loss(model(x), torch.zeros_like(logits))",
        "other = criterion(model(x), y)",
    ],
)
def test_a_model_called_again_with_the_same_batch(line: str) -> None:
    assert step(line) == "logits = model(x)"


@pytest.mark.parametrize(
    ("line", "before", "between"),
    [
        ("again = model(x)", "logits = model(y)", "pass"),
        ("again = model(x)", "logits = teacher(x)", "pass"),
        ("again = model(x)", "x = model(x)", "pass"),
        ("again = model(x)", "logits = model(x)", "x = x + 0.1 * x.grad.sign()"),
        ("again = model(x)", "logits = model(x)", "x.add_(noise)"),
        ("again = model(x)", "logits = model(x)", "x[:, 0] = 0"),
        ("again = model(x)", "logits = model(x)", "optimizer.step()"),
        ("again = model(x)", "logits = model(x)", "optimizer.first_step(zero_grad=True)"),
        ("again = model(x)", "logits = model(x)", "ema.apply_shadow()"),
        ("again = model(x)", "logits = model(x)", "adversary.attack()"),
        ("again = model(x)", "logits = model(x)", "mixup_(x)"),
        ("again = model(x)", "logits = model(x)", "nn.init.normal_(x)"),
        ("again = model(x)", "logits = model(x)", "model.eval()"),
        ("again = model(x)", "logits = model(x)", "model = other"),
        ("again = model(x)", "if y.any(): logits = model(x)", "pass"),
        ("again = teacher(model(x))", "logits = model(x)", "pass"),
        ("again = model(x)", "logits = model(x, masked=True)", "pass"),
        ("again = model(torch.rand_like(x))", "logits = model(torch.rand_like(x))", "pass"),
        ("again = model(next(batches))", "logits = model(next(batches))", "pass"),
    ],
)
def test_another_model_another_batch_or_perhaps_another_result(line: str, before: str, between: str) -> None:
    assert step(line, before, between) is None


@pytest.mark.parametrize(
    "between",
    [
        "loss = criterion(logits, y); scaler.scale(loss).backward()",
        "optimizer.zero_grad()",
        "norm = sum(p.square().sum() for p in model.parameters())",
        "writer.add_scalar('loss', loss.item(), n)",
        "torch.cuda.synchronize()",
        "hidden = model.encode(x)",
    ],
)
def test_what_changes_no_model_may_lie_between(between: str) -> None:
    assert step("preds = model(x).argmax(1)", between=between) == "logits = model(x)"


def test_a_part_of_a_model_called_twice_in_its_forward_pass() -> None:
    pair = """\
        class Pair(nn.Module):
            def __init__(self):
                super().__init__()
                self.net, self.queue = Net(), []

            def forward(self, x, y):
                one = self.net(x)
                far = self.net(y)
                return one - far, self.net(x).detach()  # here
        """
    assert first(pair, as_module=True) == "one = self.net(x)"
    assert first(pair.replace("far = self.net(y)", "self.net = Net()"), as_module=True) is None


@pytest.mark.parametrize("layer", ["nn.Dropout(0.1)", "DropPath(0.1)", "GaussianNoise(0.1)"])
def test_a_model_that_draws_random_numbers_may_be_called_twice_on_purpose(layer: str) -> None:
    text = "def step(model, x):\n    one = model(x)\n    two = model(x)  # here\n    return one, two\n"
    assert first(text, as_module=True) is not None
    assert first(text, as_module=True, model=MODEL.replace("nn.Linear(8, 2)", layer)) is None


def test_the_second_call_may_be_without_gradients_but_not_in_another_precision() -> None:
    text = """\
        def step(model, x, y):
            logits = model(x)
            with {}:
                preds = model(x)  # here
            return logits, preds
        """
    assert first(text.format("torch.no_grad()"), as_module=True) == "logits = model(x)"
    assert first(text.format("torch.autocast('cpu', dtype=torch.bfloat16)"), as_module=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "try:\n    logits = model(x)\nexcept ValueError:\n    again = model(x)  # here",
        "match y:\n    case 1:\n        again = model(x)  # here",
        "try:\n    pass\nfinally:\n    again = model(x)  # here",
    ],
)
def test_a_line_that_runs_instead_of_another_repeats_nothing(text: str) -> None:
    assert first(f"def step(model, x, y):\n{textwrap.indent(text, '    ')}\n", as_module=True) is None


def test_what_ran_before_a_try_is_repeated_within_it() -> None:
    text = "def step(model, x):\n    one = model(x)\n    try:\n        two = model(x)  # here\n    except ValueError:\n        pass\n"
    assert first(text, as_module=True) == "one = model(x)"


@pytest.mark.parametrize(
    "line", ["x = x + torch.randn_like(x)", "z = mu + std.normal_()", "z = Normal(x, 1).rsample()"]
)
def test_a_forward_pass_that_draws_gives_another_result(line: str) -> None:
    text = "def step(model, x):\n    one = model(x)\n    two = model(x)  # here\n    return one, two\n"
    forward = "def forward(self, x):\n"
    assert first(text, as_module=True, model=MODEL.replace(forward, f"{forward}        {line}\n")) is None


def test_what_is_drawn_to_make_a_model_is_no_matter() -> None:
    text = "def step(pretrained, x):\n    one = pretrained(x)\n    two = pretrained(x)  # here\n    return one, two\n"
    made = MODEL.replace("nn.Linear(8, 2)", "nn.Linear(8, 2); nn.init.normal_(self.body.weight)")
    assert first(text, as_module=True, model=made) == "one = pretrained(x)"


@pytest.mark.parametrize("change", ["self.state = x", "self.queue[0] = x", "self.codes.mul_(0.9)"])
def test_a_model_that_changes_itself_gives_another_result(change: str) -> None:
    text = "def step(model, x):\n    one = model(x)\n    two = model(x)  # here\n    return one, two\n"
    forward = "def forward(self, x):\n"
    assert first(text, as_module=True, model=MODEL.replace(forward, f"{forward}        {change}\n")) is None


def test_layers_of_torch_are_no_matter_where_it_is_known_that_none_draws() -> None:
    text = f"{IMPORTS}{{}}def step(model, x):\n    one = model(x)\n    two = model(x)\n    return one, two\n"
    for layer, found in (("nn.Dropout(p) if p else nn.Identity()", True), ("DropPath(p)", False)):
        given = text.format(MODEL.replace("nn.Linear(8, 2)", layer))
        source, line = (Source(FILE, "", given),), given.count("\n") - 1
        assert computed_before(source, FILE, line, as_module=True) is None
        known = computed_before(source, FILE, line, as_module=True, plain_layers=True)
        assert (known is not None) is found


@pytest.mark.parametrize(
    ("line", "recorded"),
    [
        ("loss = criterion(model(x), y)", True),
        ("preds = model(x).argmax(1)", False),
        ("value = F.cross_entropy(model(x), y).item()", False),
        ("with torch.no_grad():\n        preds = model(x)", False),
    ],
)
def test_a_second_result_without_gradients_has_no_backward_pass(line: str, *, recorded: bool) -> None:
    text = f"{IMPORTS}{MODEL}def step(model, x, y):\n    logits = model(x)\n    {line}\n    return logits\n"
    found = computed_before((Source(FILE, "", text),), FILE, text.count("\n") - 1, as_module=True)
    assert found is not None and found.recorded is recorded


def test_a_loop_around_the_second_call_alone_is_another_matter() -> None:
    text = """\
        def step(model, x, views):
            logits = model(x)
            for view in views:
                again = model(x)  # here
        """
    assert first(text, as_module=True) is None


@pytest.mark.parametrize(
    ("line", "before"),
    [
        ("two = torch.cdist(z, z).argmin(1)", "one = torch.cdist(z, z).max()"),
        ("two = (z @ w.T).mean().item()", "one = (z @ w.T).max()"),
        ("two = F.normalize(z, dim=1)", "one = F.normalize(z, dim=1).sum()"),
        ("two = z.sort(dim=0)", "one = z.sort(dim=0)"),
    ],
)
def test_an_operation_of_torch_twice(line: str, before: str) -> None:
    text = f"def loss(z, w):\n    {before}\n    {line}  # here\n    return one + two\n"
    assert first(text, as_module=False) == before


@pytest.mark.parametrize(
    ("line", "before", "between"),
    [
        ("two = torch.cdist(z, w)", "one = torch.cdist(z, z)", "pass"),
        ("two = torch.cdist(z, z)", "one = torch.cdist(z, z)", "z = z - z.mean()"),
        ("two = F.dropout(z)", "one = F.dropout(z)", "pass"),
        ("two = torch.randn(z.shape)", "one = torch.randn(z.shape)", "pass"),
        ("two = torch.cdist(z, z) + z @ w.T", "one = torch.cdist(z, z)", "pass"),
        ("two = z.view(-1)", "one = z.view(-1)", "pass"),
        ("two = F.softmax(z @ w.T, dim=-1)", "one = (z @ w.T).max()", "pass"),
        ("two = torch.cdist(z, z).topk(5)", "one = torch.cdist(z, z).max()", "pass"),
    ],
)
def test_an_operation_on_something_else_or_of_no_weight(line: str, before: str, between: str) -> None:
    text = f"def loss(z, w):\n    {before}\n    {between}\n    {line}  # here\n    return one + two\n"
    assert first(text, as_module=False) is None
