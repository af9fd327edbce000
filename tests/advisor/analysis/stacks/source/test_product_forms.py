"""Products of matrices that are computed in a slow form, and what only looks like one."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.analysis.stacks.source.product_forms import PRODUCT_FORMS


def forms(text: str) -> set[str]:
    nodes = ast.walk(ast.parse(text, mode="eval").body)
    return {form for node in nodes for form, matches in PRODUCT_FORMS.items() if matches(node)}


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
    assert forms(text) == {"distances"}


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
    assert forms(text) == {form}


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
    assert forms(text) == {form}


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
    ],
)
def test_what_torch_has_no_faster_operation_for(text: str) -> None:
    assert forms(text) == set()
