"""An expression whose names are written out is at most one of the composed forms."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.analysis.stacks.source.composed_forms import FORMS, takes_few


def forms(text: str) -> list[str]:
    node = ast.parse(text, mode="eval").body
    return [form for form, matches in FORMS.items() if matches(node)]


MEAN = "x.mean({0}, keepdim=True)"
NORM = f"(x - {MEAN}) / torch.sqrt((x - {MEAN}).pow(2).mean({{0}}, keepdim=True) + 1e-5)"


@pytest.mark.parametrize(
    ("axes", "form"),
    [
        ("-1", "layer norm"),
        ("1", "layer norm of channels"),
        ("0", "batch norm"),
        ("(0, 2, 3)", "batch norm"),
        ("(2, 3)", "instance norm"),
        ("[-2, -1]", "layer norm"),
    ],
)
def test_normalisations_by_their_dimensions(axes: str, form: str) -> None:
    assert forms(NORM.format(axes))[0] == form


@pytest.mark.parametrize(
    "text",
    [
        "((a.unsqueeze(1) - b.unsqueeze(0)) ** 2).sum(-1)",
        "torch.linalg.norm(a[:, None] - b[None], dim=-1)",
        "(a.unsqueeze(-2) - self.codes).square().sum(dim=-1)",
        "torch.sum((a[:, :, None] - b[:, None]).pow(2), 3)",
    ],
)
def test_distances_of_all_pairs(text: str) -> None:
    assert forms(text) == ["distances"]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("F.linear(F.one_hot(y, 10).float(), w)", "product with one-hot rows"),
        ("torch.eye(10)[y] @ w", "product with one-hot rows"),
        ("self.project(F.one_hot(y, 10).float())", "layer on one-hot rows"),
        ("self.linear(torch.eye(10, device=y.device)[y].view(-1, 10).to(x))", "layer on one-hot rows"),
    ],
)
def test_one_hot_rows_in_a_product_and_in_a_layer(text: str, form: str) -> None:
    assert forms(text) == [form]


@pytest.mark.parametrize(
    "text",
    [
        "((a[:, None] - b[:, None]) ** 2).sum(-1)",  # pairs of the same rows
        "((a[:, None] - b[None]) ** 3).sum(-1)",
        "((a[:, None] - b[None]) ** 2).sum(1)",  # over one of the two
        "((a[:, None] + b[None]) ** 2).sum(-1)",
        "torch.exp(x) / torch.exp(x).sum()",
        "x * torch.erf(x)",
        "(x - x.mean(-1, keepdim=True)) * (x.var(-1, keepdim=True) + 1e-5)",
        "F.one_hot(y, 10).float() + self.weight",
        "self.weight @ F.one_hot(y, 10).float()",
        "criterion(x, F.one_hot(y, 10).float())",
        "matmul()",
        "x.sort(-1)[0][:, k:]",
    ],
)
def test_what_is_none(text: str) -> None:
    assert forms(text) == (["gelu"] if "erf" in text else [])


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("((a[:, None] - b[None]) ** 2).mean(dim=-1)", "distances"),
        ("F.pairwise_distance(a.unsqueeze(1), b.unsqueeze(0))", "distances"),
        ("(a[:, None] - b[None]).abs().sum(-1)", "absolute distances"),
        ("torch.abs(a.unsqueeze(1) - self.codes).sum(2)", "absolute distances"),
        ("F.cosine_similarity(a.unsqueeze(1), b.unsqueeze(0), dim=2)", "cosine similarities"),
        ("self.similarity(a.unsqueeze(1), b.unsqueeze(0))", "layer of cosine similarities"),
        ("(a.unsqueeze(1) * b.unsqueeze(0)).sum(-1)", "sums of products"),
        ("torch.sum(a[:, :, None] * b[None], dim=1)", "sums of products"),
        ("torch.matmul(self.weight.view(8, -1), F.unfold(x, 3, padding=1))", "convolution by columns"),
        ("torch.einsum('ok,bkl->bol', self.weight.flatten(1), self.unfold(x))", "convolution by columns"),
        ("F.linear(F.unfold(x, 3).transpose(1, 2), self.weight)", "convolution by columns"),
        ("torch.diag(degree.pow(-0.5)) @ a", "product with a diagonal matrix"),
        ("a @ torch.diag_embed(self.layer(x))", "product with a diagonal matrix"),
        ("F.one_hot(groups, n).float().T @ x", "sums by one-hot rows"),
        ("torch.mm(F.one_hot(groups, n).t().to(x), x)", "sums by one-hot rows"),
        ("(groups.unsqueeze(0) == torch.arange(n).unsqueeze(1)).float() @ x", "sums by one-hot rows"),
    ],
)
def test_products_in_a_slow_form(text: str, form: str) -> None:
    assert forms(text) == [form]


@pytest.mark.parametrize(
    ("text", "form"),
    [
        ("x * (x > 0).float()", "relu by a mask"),
        ("torch.max(x, torch.zeros_like(x))", "relu by a maximum"),
        ("torch.maximum(0.2 * x, x)", "relu by a maximum"),
        ("torch.max(x, self.slope * x)", "relu by a maximum"),
        ("torch.where(x >= 0, x, x * 0.01)", "leaky relu"),
        ("torch.where(x > 0, x, self.alpha * (torch.exp(x) - 1))", "elu"),
        ("x * F.relu6(x + 3.0) / 6.0", "hardswish"),
        ("x * torch.clamp(x + 3, 0, 6) / 6", "hardswish"),
        ("torch.where((x - y).abs() < 1, 0.5 * (x - y).abs() ** 2, (x - y).abs() - 0.5)", "smooth L1 loss"),
        ("((x - y) ** 2).mean()", "squared error"),
        ("torch.mean((x - y).pow(2))", "squared error"),
        (
            "-(y * torch.log(x.sigmoid() + 1e-8) + (1 - y) * torch.log(1 - x.sigmoid() + 1e-8)).mean()",
            "binary cross entropy",
        ),
        ("-y * torch.log(x.sigmoid()) - (1 - y) * torch.log(1 - x.sigmoid())", "binary cross entropy"),
        ("torch.log(torch.softmax(x, -1) + 1e-9)", "logarithm of softmax"),
        ("x.softmax(-1).clamp(min=1e-9).log()", "logarithm of softmax"),
    ],
)
def test_activations_and_losses(text: str, form: str) -> None:
    node = ast.parse(text, mode="eval").body
    assert {form for each in ast.walk(node) for form, matches in FORMS.items() if matches(each)} == {form}


@pytest.mark.parametrize(
    "text",
    [
        "F.cosine_similarity(a, b, dim=-1)",
        "F.cosine_similarity(a.unsqueeze(1), b.unsqueeze(1), dim=-1)",
        "self.score(a, b)",
        "torch.cdist(a, b)",
        "(weights.unsqueeze(-1) * values).sum(1)",  # as large as the values
        "(a.unsqueeze(1) * b.unsqueeze(0)).sum(1)",  # over a dimension that one of them lacks
        "q @ F.unfold(k, 3)",  # a kernel of its own for each pixel
        "torch.matmul(self.weight, x.unfold(2, 3, 1))",  # a view
        "torch.diag(torch.linalg.inv(k)) @ y",  # takes a diagonal out
        "(labels[:, None] == labels[None]).float() @ x",
        "x * (y > 0).float()",
        "torch.max(x, y)",
        "torch.max(x, 0)",
        "torch.where(mask, x, 0.2 * x)",
        "torch.where(x > 0, x, y * x)",
        "x * F.relu6(y + 3) / 6",
        "x * torch.tanh(F.softplus(x))",  # F.mish is slower
        "torch.log(1 + torch.exp(x))",  # so is F.softplus
        "y * torch.log(p) + (1 - y) * torch.log(1 - p)",  # and F.binary_cross_entropy of probabilities
        "((x - y) ** 2).mean(0)",
        "((x - y) ** 2 * weight).mean()",
        "torch.log(x.sum(-1))",
    ],
)
def test_what_torch_has_no_faster_operation_for(text: str) -> None:
    node = ast.parse(text, mode="eval").body
    assert {form for each in ast.walk(node) for form, matches in FORMS.items() if matches(each)} == set()


@pytest.mark.parametrize(
    ("text", "few"),
    [
        ("x[:k]", True),
        ("x[:, :k]", True),
        ("x[k:]", False),
        ("x[::2]", False),
        ("x[:, 0]", True),
        ("x[0]", False),
        ("x[:, n // 2]", True),
        ("x[2:4]", True),
        ("x[a:b]", False),
        ("x[:, order]", False),
    ],
)
def test_few_elements(text: str, few: bool) -> None:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Subscript) and takes_few(node) is few
