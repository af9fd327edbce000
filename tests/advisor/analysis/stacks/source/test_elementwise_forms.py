"""Activations and losses composed of elementwise operations, and those for which torch has nothing faster."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.analysis.stacks.source.elementwise_forms import ELEMENTWISE_FORMS


def forms(text: str) -> set[str]:
    nodes = ast.walk(ast.parse(text, mode="eval").body)
    return {form for node in nodes for form, matches in ELEMENTWISE_FORMS.items() if matches(node)}


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
    assert forms(text) == {form}


@pytest.mark.parametrize(
    "text",
    [
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
    assert forms(text) == set()
