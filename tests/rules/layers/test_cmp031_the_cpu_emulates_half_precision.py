"""CMP031, the CPU emulates half precision: its table and its advice."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import META, job, rank
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks


def cmp031(
    computing: float = 0.9,
    *,
    half: float | None = 1.0,
    bfloat16: bool = False,
    fast: Sequence[str] | None = (),
    gpu: bool = False,
    **more: Any,
) -> Analysis:
    """A rank that computes for so much of its step; the processor is fast in these half-precision formats."""
    values = {} if half is None else {"precision.half": {0: half}, "precision.bf16": {0: float(half and bfloat16)}}
    facts = {"0": {"cuda": {"devices": 1}}} if gpu else {}
    known = {} if fast is None else {"fast_half": list(fast)}
    return job(
        {0: rank(input_wait=1.0 - computing)},
        **{"values": values, "facts": facts, "meta": replace(META, environment=known), **more},
    )


TABLE = Table(
    "CMP031",
    cmp031,
    lines={"compute": ({"computing": 0.2001}, {"computing": 0.1999})},
    false_alarms={
        "single precision": {"half": 0.0},
        "a processor with instructions for float16": {"fast": ["bfloat16", "float16"]},
        "bfloat16 where the processor knows it": {"bfloat16": True, "fast": ["bfloat16"]},
        "on a GPU": {"gpu": True},
    },
    severities=(({}, "critical"), ({"computing": 0.3}, "high")),
    also_fires={"bfloat16 where it does not": {"bfloat16": True}},
    not_measured={
        "layers that were not seen": ({"half": None}, ("precision.half",)),
        "a run of an older version": ({"fast": None}, ("instructions of the processor",)),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("fast", "title"), [([], "single precision on"), (["bfloat16"], "bfloat16 or single precision on")]
)
def test_the_format_that_is_advised_is_one_that_the_processor_knows(fast: list[str], title: str) -> None:
    finding = found("CMP031", cmp031(fast=fast))
    assert finding.title.endswith("float16") and finding.fixes[0].title.startswith(title)


@pytest.mark.parametrize(("fast", "left"), [([], (0.3, 0.04)), (["bfloat16"], (0.2, 0.02))])
def test_computing_takes_a_small_part_of_its_time(fast: list[str], left: tuple[float, float]) -> None:
    saving = found("CMP031", cmp031(1.0, fast=fast)).saving
    assert saving is not None and saving.speedup == pytest.approx([1 / share for share in left])


@pytest.mark.parametrize(("second", "says"), [(1.0, True), (0.0, False)], ids=["both", "one of two"])
def test_ranks_in_single_precision_take_as_long_as_before(second: float, *, says: bool) -> None:
    made = job(
        {0: rank(), 1: rank()},
        values={"precision.half": {0: 1.0, 1: second}, "precision.bf16": {0: 0.0, 1: 0.0}},
        meta=replace(META, environment={"fast_half": []}),
    )
    assert isinstance(run_rule(RULES["CMP031"], made, Config()), Finding if says else Clear)
