"""CMP015, the model computes in double precision: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp015(
    computing: float = 0.9,
    *,
    size: float = 8.0,
    elements: int | None = 1_000_000,
    gpu: bool = False,
    layer: str = "Linear",
    **more: Any,
) -> Analysis:
    """One rank that computes for so much of its step, with parameters of so many bytes."""
    held = {} if elements is None else {"elements": elements, "parameter_bytes": int(size * elements)}
    model = {"layers": {layer: 3}}
    facts = {"0": {"model": model, "optimizer": {"class": "SGD", **held}, **({"cuda": {"index": 0}} if gpu else {})}}
    return job({0: rank(input_wait=1.0 - computing)}, **{"facts": facts, **more})


TABLE = Table(
    "CMP015",
    cmp015,
    lines={"compute": ({"computing": 0.2001}, {"computing": 0.1999})},
    false_alarms={"single precision": {"size": 4.0}, "mostly single precision": {"size": 5.0}},
    severities=(
        ({"computing": 0.6}, "high"),
        ({"computing": 0.25}, "medium"),
    ),
    not_measured={"sharded parameters": ({"elements": None}, ("optimizer",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp015_promises_nothing_on_a_gpu() -> None:
    finding = found("CMP015", cmp015(gpu=True))
    assert (finding.saving, finding.seconds_per_step) == (None, 0.0)


@pytest.mark.parametrize(
    ("layer", "gain"),
    [
        ("Conv1d", (1 / 0.685, 1 / 0.244)),
        ("ConvTranspose2d", (1 / 0.685, 1 / 0.244)),
        ("LSTM", (1 / 0.685, 1 / 0.244)),
        ("Linear", (1 / 0.955, 1 / 0.55)),
        ("Conv1D", (1 / 0.955, 1 / 0.55)),  # that of transformers is a linear layer
    ],
)
def test_layers_without_fast_code_for_double_precision_gain_more(layer: str, gain: tuple[float, float]) -> None:
    saving = found("CMP015", cmp015(layer=layer)).saving
    assert saving is not None and saving.speedup == pytest.approx(gain, rel=0.01)
