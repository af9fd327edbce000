"""An expression whose names are written out is at most one of the composed forms."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.analysis.stacks.source.composed_forms import FORMS, takes_first


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
    ("text", "first"), [("x[:k]", True), ("x[:, :k]", True), ("x[k:]", False), ("x[::2]", False), ("x[:k, 0]", False)]
)
def test_the_first_elements(text: str, first: bool) -> None:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Subscript) and takes_first(node) is first
