"""Names that stand for arrays, by what one file shows."""

from __future__ import annotations

import ast

import pytest

from rn50_advisor.advisor.edits.syntax import parse_code
from rn50_advisor.advisor.run.stacks.arrays_in_code import is_array


def shown(text: str) -> bool:
    """Whether what is indexed by `[i]` at the only place is an array."""
    code = parse_code("/job/data.py", text)
    assert code is not None
    [node] = [n for n in ast.walk(code.tree) if isinstance(n, ast.Subscript) and ast.unparse(n.slice) == "i"]
    return is_array(code, node.value)


@pytest.mark.parametrize(
    "made",
    [
        "torch.zeros(9)",
        "np.random.rand(9, 3)",
        "np.load(path)",
        "np.load(path)['x']",
        "frame.values",
        "frame.to_numpy()",
        "torch.load(path).float()",
        "torch.load(path) / torch.tensor(255)",
        "np.zeros(9)[3:]",
        "make()",
    ],
)
def test_what_an_array_is_made_by(made: str) -> None:
    assert shown(f"def make():\n    return np.ones(3)\nx = {made}\nx[i]")


@pytest.mark.parametrize(
    "made",
    [
        "[]",
        "{}",
        "list(rows)",
        "torch.load(path)",
        "pickle.load(file)",
        "CIFAR10(root)",
        "torch.nn.ModuleList(layers)",
        "x.chunk(3)",
        "make()",
        "model(batch).hidden_states",
        "rows",
    ],
)
def test_what_is_a_list_or_unknown(made: str) -> None:
    assert not shown(f"def make():\n    return [1]\nx = {made}\nx[i]")


@pytest.mark.parametrize(
    ("text", "array"),
    [
        ("x = load()\nn = x.shape[0]\nx[i]", True),
        ("x = load()\nx[0, 3]\nx[i]", True),
        ("x = load()\nlen(x)\nx[i]", False),
        ("x = []\nx = np.array(x)\nx[i]", False),
        ("def take(x: torch.Tensor):\n    x[i]", True),
        ("def take(x: list[Tensor]):\n    x[i]", False),
        ("def take(x):\n    x[i]\ntake(np.ones(3))", True),
        ("def take(a, x=None):\n    x[i]\ntake(0, x=[1])", False),
        ("def take(x):\n    x[i]\ndef other(x):\n    return x.shape", False),
        ("a, x = 0, np.ones(3)\nx[i]", True),
        ("class D:\n    x: np.ndarray\n    def get(self):\n        self.x[i]", True),
        (
            "class D:\n    def __init__(self, x):\n        self.x = x\n    def get(self):\n        self.x[i]\nd = D(np.ones(3))",
            True,
        ),
        (
            "class D:\n    def __init__(self, x):\n        self.x = x\n    def get(self):\n        self.x[i]\nd = D([1])",
            False,
        ),
        ("class D:\n    def __init__(self, x):\n        self.x = x\n    def get(self):\n        self.x[i]", False),
    ],
)
def test_names_are_followed_through_the_file(text: str, array: bool) -> None:
    assert shown(text) == array
