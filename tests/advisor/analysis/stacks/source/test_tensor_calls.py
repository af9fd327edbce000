"""Calls of torch in an expression: as a function or a method, with their operands and dimensions."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.analysis.stacks.source.tensor_calls import axes_of, calls_in, name_of, operands_of


def call(text: str) -> ast.Call:
    node = ast.parse(text, mode="eval").body
    assert isinstance(node, ast.Call)
    return node


@pytest.mark.parametrize(
    ("text", "name", "operands"),
    [
        ("torch.pow(x, 2)", "pow", ["x", "2"]),
        ("x.pow(2)", "pow", ["x", "2"]),
        ("torch.nn.functional.gelu(x)", "gelu", ["x"]),
        ("self.h.mean(1)", "mean", ["self.h", "1"]),
        ("f(x).sum()", "sum", ["f(x)"]),
        ("softmax(x)", "softmax", ["x"]),
    ],
)
def test_functions_and_methods_have_the_same_operands(text: str, name: str, operands: list[str]) -> None:
    assert name_of(call(text)) == name
    assert [ast.unparse(each) for each in operands_of(call(text))] == operands


@pytest.mark.parametrize(
    ("text", "axes"),
    [
        ("x.sum(-1)", (-1,)),
        ("torch.sum(x, dim=(0, 2))", (0, 2)),
        ("x.mean(axis=[1])", (1,)),
        ("x.mean()", ()),
        ("x.mean(dim)", ()),
        ("x.max(dim=True)", ()),
    ],
)
def test_dimensions_that_are_numbers(text: str, axes: tuple[int, ...]) -> None:
    assert axes_of(call(text), operands_of(call(text))) == axes


def test_calls_inside_an_expression_by_name() -> None:
    found = [ast.unparse(each) for each, _ in calls_in(call("f(x.exp() + torch.exp(y) + x.log())"), "exp")]
    assert sorted(found) == ["torch.exp(y)", "x.exp()"] and name_of(ast.parse("x", mode="eval").body) == ""
