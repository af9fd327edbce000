"""From the source: operations that a function composes of elementary ones, with all of their lines."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.stacks.source.composed_source import composed_at, configured_at, is_diagonal
from rn50_advisor.advisor.model.recording import Source

SCRIPT = "/job/model.py"


def source(text: str) -> tuple[Source, ...]:
    return (Source(SCRIPT, "", text),)


def function(body: str) -> tuple[Source, ...]:
    lines = "".join(f"    {line}\n" for line in body.splitlines())
    return source(f"def forward(self, x, y):\n{lines}")


# body, the form, its lines in the file
FORMS = {
    "gelu by tanh": (
        "return 0.5 * x * (1.0 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))",
        "gelu by tanh",
        {2},
    ),
    "gelu": ("return x * 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))", "gelu", {2}),
    "gelu in steps": ("cdf = 0.5 * (1.0 + torch.erf(x / 1.41421))\nreturn self.out(x * cdf)", "gelu", {2, 3}),
    "silu": ("h = self.layer(x)\nreturn h * torch.sigmoid(h)", "silu", {3}),
    "silu by a method": ("return x.sigmoid() * x", "silu", {2}),
    "the annotated transformer's": (
        "mean = x.mean(-1, keepdim=True)\nstd = x.std(-1, keepdim=True)\n"
        "return self.a * (x - mean) / (std + self.eps) + self.b",
        "layer norm",
        {2, 3, 4},
    ),
    "by a centred name and rsqrt": (
        "x = self.layer(x)\nd = x - torch.mean(x, dim=2, keepdim=True)\nvar = (d * d).mean(2, True)\n"
        "return d * torch.rsqrt(var + 1e-5) * self.weight",
        "layer norm",
        {3, 4, 5},
    ),
    "ConvNeXt's": (
        "u = x.mean(1, keepdim=True)\ns = (x - u).pow(2).mean(1, keepdim=True)\nx = (x - u) / torch.sqrt(s + 1e-6)\n"
        "return self.weight[:, None, None] * x + self.bias[:, None, None]",
        "layer norm of channels",
        {2, 3, 4, 5},
    ),
    "d2l's": (
        "mean = x.mean(dim=(0, 2, 3), keepdim=True)\nvar = ((x - mean) ** 2).mean(dim=(0, 2, 3), keepdim=True)\n"
        "hat = (x - mean) / torch.sqrt(var + 1e-5)\nreturn gamma * hat + beta",
        "batch norm",
        {2, 3, 4, 5},
    ),
    "of each picture": (
        "m = x.mean((2, 3), keepdim=True)\nreturn (x - m) / (x.std((2, 3), keepdim=True) + 1e-5)",
        "instance norm",
        {2, 3},
    ),
    "softmax": (
        "e = torch.exp(x - x.max(-1, keepdim=True)[0])\nreturn e / e.sum(-1, keepdim=True)",
        "softmax",
        {2, 3},
    ),
    "prototypes": (
        "a = x.unsqueeze(1).expand(n, m, d)\nb = y.unsqueeze(0).expand(n, m, d)\nreturn torch.pow(a - b, 2).sum(2)",
        "distances",
        {2, 3, 4},
    ),
    "a codebook": (
        "flat = self.encode(x)\nd = ((flat[:, None, :] - self.codebook[None]) ** 2).sum(-1)\nreturn d.argmin(1)",
        "distances",
        {3},
    ),
    "a norm": ("return torch.norm(x.unsqueeze(1) - self.centres, dim=2)", "distances", {2}),
    "one-hot loss": (
        "t = F.one_hot(y, 10).float()\nreturn -(t * F.log_softmax(x, dim=-1)).sum(dim=1).mean()",
        "cross entropy of one-hot targets",
        {2, 3},
    ),
    "layer on one-hot rows": ("t = torch.eye(10)[y]\nreturn self.project(t)", "layer on one-hot rows", {2, 3}),
    "one-hot rows": ("return F.one_hot(y, 10).float() @ self.weight", "product with one-hot rows", {2}),
    "scatter by a repeated index": (
        "index = y.view(-1, 1).repeat(1, x.shape[1])\nreturn out.scatter_add_(0, index, x)",
        "repeated index",
        {2, 3},
    ),
    "gather by a repeated index": ("return torch.gather(x, 0, y[:, None].repeat(1, 8))", "repeated index", {2}),
    "an argument by its name": ("return self.out(hidden=x * torch.sigmoid(x))", "silu", {2}),
    "argsort": ("return x.argsort(dim=-1)[:, :k]", "sorted prefix", {2}),
    "columns": (
        "cols = F.unfold(x, 3, padding=1)\nout = torch.einsum('ok,bkl->bol', self.weight.flatten(1), cols)\nreturn out.view(b, -1, h, w)",
        "convolution by columns",
        {2, 3},
    ),
    "a normalised graph": (
        "a = x + torch.eye(len(x))\nd = torch.diag(a.sum(1).pow(-0.5))\nreturn self.layer(d @ a @ d @ y)",
        "product with a diagonal matrix",
        {3, 4},
    ),
    "one of a sort": ("v, i = torch.sort(x, dim=1)\nreturn v[:, n // 2]", "sorted prefix", {2, 3}),
    "values of a sort": ("v, i = x.sort(-1, descending=True)\nreturn v[:, :10], i[:, :10]", "sorted prefix", {2, 3}),
}


def test_a_change_of_shape_before_it_is_not_its_first_line() -> None:
    body = "flat = x.reshape(-1, 8)\nd = (flat.unsqueeze(1) - y.unsqueeze(0)).pow(2).sum(-1)\nreturn d.argmin(1)"
    found = composed_at(function(body), SCRIPT, 3)
    assert found is not None and (found.form, found.first, found.lines) == ("distances", 3, {2, 3})


@pytest.mark.parametrize(("body", "form", "lines"), FORMS.values(), ids=FORMS)
def test_forms_with_their_lines(body: str, form: str, lines: set[int]) -> None:
    text = function(body)
    found = composed_at(text, SCRIPT, max(lines))
    assert found is not None and found.form == form and found.first in lines
    assert {line for line in range(1, 9) if composed_at(text, SCRIPT, line)} == lines


@pytest.mark.parametrize(
    "body",
    [
        "return 0.5 * (1.0 + torch.erf(x / math.sqrt(2.0)))",  # a distribution function
        "return x * torch.sigmoid(self.gate)",
        "return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight",  # torch's is no faster
        "return (x - x.mean()) / (x.std() + 1e-8)",  # advantages: one mean for all
        "return (x - x.mean(-1, keepdim=True)) / (y.std(-1, keepdim=True) + 1e-8)",
        "return torch.norm(x - y.unsqueeze(1), dim=-1).min(1)",  # each row has its own others
        "return (x - y).pow(2).sum(-1)",
        "return out.scatter_add_(0, y.view(-1, 1).expand_as(x), x.repeat(1, 2))",
        "v, i = x.sort(-1)\nc = v.cumsum(-1)\nreturn i[:, :10]",  # all of it is needed
        "i = torch.argsort(x, dim=1)\nr = torch.argsort(i, dim=1)\nreturn i[:, :k], r",
        "return x.exp() / y.exp().sum(-1, keepdim=True)",
        "x = x + self.attention(self.norm(x))\nreturn x + self.net(x)",
        "v, i = x.sort(-1)\nreturn v[0]",
    ],
)
def test_what_is_none(body: str) -> None:
    assert not any(composed_at(function(body), SCRIPT, line) for line in range(1, 6))


SMOOTHING = """\
def forward(self, x, target):
    dist = x.detach().clone()
    dist.fill_(self.smoothing / (self.size - 2))
    dist.scatter_(1, target.unsqueeze(1), self.confidence)
    dist[:, self.padding] = 0
    mask = target == self.padding
    dist = dist.masked_fill(mask.unsqueeze(1), 0.0)
    return self.criterion(x, dist)
"""


def test_smoothed_labels_of_a_divergence() -> None:
    made = "class Smoothing:\n    def __init__(self):\n        self.criterion = nn.KLDivLoss()\n"
    text = source(SMOOTHING + made)
    found = composed_at(text, SCRIPT, 4)
    assert found is not None and (found.form, sorted(found.lines)) == ("smoothed targets", [2, 3, 4, 5, 7, 8])
    assert composed_at(text, SCRIPT, 6) is None, "a comparison of indices"
    assert composed_at(source(SMOOTHING), SCRIPT, 4) is None, "of another loss"


def test_a_layer_that_makes_an_input_does_not_belong_to_it() -> None:
    text = function("h = self.layer(x)\nmean = h.mean(-1, keepdim=True)\nreturn (h - mean) / h.std(-1, keepdim=True)")
    assert composed_at(text, SCRIPT, 2) is None and composed_at(text, SCRIPT, 3) is not None


def test_names_are_those_of_their_function() -> None:
    text = source(
        "def outer(x):\n    mean = x.mean(-1, keepdim=True)\n    def inner(x):\n        return (x - mean) / 2\n"
        "    return inner(x)\n"
    )
    assert not any(composed_at(text, SCRIPT, line) for line in range(1, 6))


def test_an_expression_that_grows_beyond_measure_is_given_up() -> None:
    body = "a = x + x\n" + "a = a * a + a\n" * 12 + "return a * torch.sigmoid(a)"
    assert composed_at(function(body), SCRIPT, 2) is None


def test_without_a_source_nothing_is_known() -> None:
    assert composed_at((), SCRIPT, 2) is None and not is_diagonal((), SCRIPT)


@pytest.mark.parametrize(
    ("text", "diagonal"),
    [
        ("p = MultivariateNormal(mean, torch.diag_embed(var))", True),
        ("cov = torch.diag(self.var).unsqueeze(0)\np = D.MultivariateNormal(mean, covariance_matrix=cov)", True),
        ("self.cov = 0.5 * torch.eye(2)\np = MultivariateNormal(mean, self.cov)", True),
        ("p = MultivariateNormal(mean, scale_tril=self.tril(x))", False),
        ("p = MultivariateNormal(a, torch.eye(2))\nq = MultivariateNormal(b, self.full(x))", False),
        ("p = Normal(mean, torch.diag(var))", False),
    ],
)
def test_distributions_of_a_diagonal(text: str, diagonal: bool) -> None:
    assert is_diagonal(source(text), SCRIPT) is diagonal


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("from transformers import GPT2Config\nc = GPT2Config(n_layer=2)", 2, id="a configuration"),
        pytest.param("import transformers\nc = transformers.GPT2Config()", 2, id="with the package's name"),
        pytest.param("from transformers import AutoModel\nm = AutoModel.from_pretrained('gpt2')", 2, id="a model"),
        pytest.param(
            "from transformers import AutoModel, AutoTokenizer\nt = AutoTokenizer.from_pretrained('a')\n"
            "m = AutoModel.from_pretrained('a')",
            3,
            id="beside a tokenizer",
        ),
        pytest.param(
            "from transformers import GPT2Config, GPT2LMHeadModel\nm = GPT2LMHeadModel(\n    GPT2Config())",
            3,
            id="the configuration before the model",
        ),
        pytest.param(
            "from transformers import AutoConfig, AutoModel\nc = AutoConfig.from_pretrained('a')\n"
            "m = AutoModel.from_config(c)",
            2,
            id="a configuration that is loaded",
        ),
        pytest.param("from settings import TrainConfig\nc = TrainConfig()", None, id="another configuration"),
        pytest.param("from transformers import AutoModel\nm = AutoModel.generate()", None, id="another call"),
        pytest.param(
            "from transformers import AutoModel\na = AutoModel.from_pretrained('a')\n"
            "b = AutoModel.from_pretrained('b')",
            None,
            id="several",
        ),
        pytest.param("from transformers import", None, id="no source"),
    ],
)
def test_where_a_model_of_transformers_is_configured(text: str, line: int | None) -> None:
    assert configured_at(source(text)) == (None if line is None else {"file": SCRIPT, "line": line})


def test_a_source_that_has_changed_configures_nothing() -> None:
    text = "from transformers import GPT2Config\nc = GPT2Config()"
    assert configured_at((Source(SCRIPT, "", text, edited=True),)) is None
