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
