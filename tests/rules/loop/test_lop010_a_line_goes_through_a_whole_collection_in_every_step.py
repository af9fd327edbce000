"""LOP010, a line goes through a whole collection in every step: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.probes.documents.code_places import CollectionWork
from rn50_advisor.rules.causes import is_cause
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table, waits, warm
from table_checks import Check, checks


def lop010(
    spends: float = 0.2,
    *,
    forward: float = 0.5,
    gap: float = 0.0,
    samples: int = 80,
    kind: CollectionWork = "permutes",
    seen: bool = True,
    **more: Any,
) -> Analysis:
    """A rank that computes so many seconds of its second in such a line."""
    own = {0: rank(forward=forward, backward=1.0 - forward - gap) | {"gap": gap}}
    call = {"kind": kind, "call": "np.random.permutation"}
    line = replace(hot(57, "sample", io=False), samples=samples, collection=call)
    values = {"step.collection_s": {0: spends}} if seen else {}
    return job(own, values=values, collection_lines=(line,) if seen else (), **more)


TABLE = Table(
    "LOP010",
    lop010,
    lines={"computing": ({"spends": 0.05}, {"spends": 0.0499})},
    false_alarms={
        "too few samples of the line to name it": {"samples": 9},
        "a line that is small beside the rest": {"spends": 0.01},
    },
    severities=waits("spends"),
    where=Where(SCRIPT, 57),
    not_measured={"without a profile": ({"seen": False}, ("step.collection_s",))},
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("kind", "title", "advice"),
    [
        ("permutes", "permutes a whole collection", "default_rng()"),
        ("copies", "copies a whole collection", "takes items by index"),
        ("grows", "copies everything so far", "parts.append(new)"),
        ("shifts", "moves all items of a list", "popleft()"),
        ("searches", "searches a whole collection", "set(items)"),
    ],
)
def test_lop010_says_what_the_call_does_and_what_to_do_instead(kind: CollectionWork, title: str, advice: str) -> None:
    finding = found("LOP010", lop010(kind=kind))
    assert finding.title == f"np.random.permutation {title}" + (" in order to add to it" if kind == "grows" else "") + (
        " in every step"
    )
    assert advice in finding.fixes[0].change and "train.py:57" in finding.evidence[1].note


def test_lop010_takes_the_line_from_between_the_steps_too() -> None:
    """Whether it is before the model or after the update does not matter for the step."""
    saving = found("LOP010", lop010(spends=0.4, forward=0.1, gap=0.5, samples=10_000)).saving
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.4 * 0.75, abs=0.06)


def test_lop010_promises_more_where_the_work_grows() -> None:
    plain, growing = (found("LOP010", lop010(kind=kind)).saving for kind in ("shifts", "grows"))
    assert plain is not None and growing is not None
    assert growing.speedup[0] == plain.speedup[0] and growing.speedup[1] > 1.3 * plain.speedup[1]


@pytest.mark.parametrize(("between", "explained"), [(0.3, True), (0.5, False)])
def test_lop010_explains_the_rules_on_the_phase_if_it_is_most_of_it(between: float, explained: bool) -> None:
    made = lop010(spends=0.2, gap=between, forward=0.2)
    cause = found("LOP010", made)
    phase = replace(cause, rule="LOP004", seconds_per_step=between)
    assert is_cause(made, cause, phase) == explained
