"""CMP013, most tokens are padding: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import LINE, job, loader, rank
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks


def cmp013(
    padding: float = 0.4, longest: float = 0.7, *, looks: int = 10, masked: bool = True, **more: Any
) -> Analysis:
    """One rank whose batches have so much padding, and would be as wide as this share if padded to their longest row."""
    cells = 100_000
    seen = {"looks": looks, "cells": cells, "tokens": round(cells * (1 - padding)), "longest": round(cells * longest)}
    facts: dict[str, Any] = {"model": {"layers": {"Embedding": 1}}, **({"padding": seen} if masked else {})}
    given = {"facts": {"0": facts}, "loaders": (loader(0, 2),), **more}
    return job({0: rank()}, **given)


TABLE = Table(
    "CMP013",
    cmp013,
    where=LINE,
    lines={"padding": ({"padding": 0.2}, {"padding": 0.1999})},
    false_alarms={"two batches": {"looks": 2}, "sequences of one length": {"padding": 0.0, "longest": 1.0}},
    severities=(
        ({"padding": 0.6, "longest": 0.45}, "critical"),
        ({"padding": 0.4, "longest": 0.8}, "high"),
        ({"padding": 0.2, "longest": 0.88}, "medium"),
    ),
    also_fires={"padded to the longest already": {"longest": 1.0}},
    not_measured={"a text model without a mask": ({"masked": False}, ("batch.attention_mask",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(("longest", "first"), [(0.89, "pad to the longest"), (0.91, "batches of similar lengths")])
def test_cmp013_groups_by_length_what_is_padded_to_the_longest(longest: float, first: str) -> None:
    assert found("CMP013", cmp013(longest=longest)).fixes[0].title.startswith(first)


@pytest.mark.parametrize(
    ("layers", "fires"),
    [
        ({"Embedding": 1, "LayerNorm": 4}, True),
        ({"Embedding": 1, "RMSNorm": 4}, True),
        ({"Embedding": 1, "LayerNorm": 4, "LSTM": 1}, False),
        ({"Embedding": 26, "Linear": 3}, False),
    ],
    ids=["a transformer", "another one", "a recurrent one", "a model of categories"],
)
def test_cmp013_reads_padding_from_the_ends_of_rows_where_the_model_is_a_transformer(
    layers: dict[str, int], fires: bool
) -> None:
    seen = {"looks": 10, "cells": 1000, "tokens": 500, "longest": 700}
    made = cmp013(facts={"0": {"model": {"layers": layers}, "padded_ends": seen}})
    outcome = run_rule(RULES["CMP013"], made, Config())
    assert isinstance(outcome, Finding) == fires
    if isinstance(outcome, Finding):
        assert "fills the ends" in outcome.evidence[0].note


def test_cmp013_stays_silent_about_a_model_without_tokens() -> None:
    pictures = cmp013(masked=False, facts={"0": {"model": {"layers": {"Conv2d": 9}}}})
    assert run_rule(RULES["CMP013"], pictures, Config()) == Clear("CMP013")
