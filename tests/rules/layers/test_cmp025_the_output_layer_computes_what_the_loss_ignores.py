"""CMP025, the output layer computes what the loss ignores: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp025(ignored: float = 0.2, *, samples: int = 20, timed: bool = True, cuda: bool = False, **more: Any) -> Analysis:
    """A rank whose backward pass spends so many seconds of its second on ignored positions."""
    nodes = {"passes": 3, "ns": 1000, "classes": [], "ignored_ns": 300, "loss_rows": [4800, 3744]}
    facts = {"0": {"backward_nodes": nodes, **({"cuda": {"devices": 1}} if cuda else {})}}
    values = {"step.ignored_s": {0: ignored}} if timed else {}
    lines = (replace(hot(30, "cloze_loss", io=False), samples=samples),)
    own = {0: rank(forward=0.3, backward=0.6)}
    return job(own, values=values, **{"loss_lines": lines, "facts": facts, **more})


TABLE = Table(
    "CMP025",
    cmp025,
    lines={"ignored": ({"ignored": 0.0421}, {"ignored": 0.0419})},
    false_alarms={"all count": {"ignored": 0.0}, "on a GPU": {"cuda": True}},
    severities=(({"ignored": 0.25}, "critical"), ({}, "high"), ({"ignored": 0.0421}, "medium")),
    where=Where(SCRIPT, 30),
    not_measured={"no pass was timed": ({"timed": False}, ("step.ignored_s",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_gain_includes_a_part_of_the_forward_pass() -> None:
    saving = found("CMP025", cmp025()).saving
    assert saving is not None
    assert saving.seconds_per_step == pytest.approx((0.2 * 0.8 / 0.91, 0.2 * 1.8 / 0.91))


def test_the_evidence_says_how_many_targets_are_ignored() -> None:
    share = found("CMP025", cmp025()).evidence[0]
    assert (share.value, "4,800" in share.note) == (0.78, True)


def test_with_too_few_samples_no_line_is_named() -> None:
    assert found("CMP025", cmp025(samples=4)).fixes[0].where is None
