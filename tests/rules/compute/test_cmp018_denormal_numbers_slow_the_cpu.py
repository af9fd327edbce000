"""CMP018, denormal numbers slow the CPU: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from explained_rules import would_explain
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Affected
from rn50_advisor.rules.causes import is_cause
from rule_cases import META, job, rank
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks


def cmp018(
    share: float | None = 0.3,
    grew: float | None = 2.0,
    *,
    kind: str = "state",
    mood: float = 1.0,
    flushed: float = 0.0,
    threads: int = 2,
    own: float = 1.0,
    on: tuple[int, ...] = (0, 1),
    gpu: bool = False,
    slow: bool | None = None,
    optimizer: str = "SGD",
    fused: bool = False,
    **more: Any,
) -> Analysis:
    """Ranks with such a share of denormal numbers, with which a step takes one second, and without them computed `grew` times as fast."""
    ranks = (0, 1)
    about = {"threads": threads, "optimizer": {"class": optimizer, "fused": fused}}
    facts = {str(n): {**about, **({"cuda": {"index": 0}} if gpu else {})} for n in ranks}
    values: dict[str, Any] = {}
    if share is not None:
        kinds = {name: dict.fromkeys(ranks, 0.0) for name in ("weights", "gradients", "state")}
        kinds[kind] |= dict.fromkeys(on, share)
        values = {f"denormal.{name}": shares for name, shares in kinds.items()}
        values["denormal.flushed"] = dict.fromkeys(ranks, flushed)
        if grew is not None:
            values |= {
                "denormal.since": dict.fromkeys(on, 830.0),
                "denormal.before_s": dict.fromkeys(on, own / grew),
                "denormal.expected_s": dict.fromkeys(on, mood * own / grew),
                "denormal.after_s": dict.fromkeys(on, own),
                "denormal.step_s": dict.fromkeys(on, 1.0),
            }
    phases = rank(input_wait=1.0 - own)
    given = job(dict.fromkeys(ranks, phases), **{"values": values, "facts": facts, **more})
    return given if slow is None else replace(given, meta=replace(META, environment={"slow_denormals": slow}))


TABLE = Table(
    "CMP018",
    cmp018,
    lines={
        "share": ({"share": 0.01}, {"share": 0.0099}),
        "grew": ({"grew": 1.1}, {"grew": 1.0999}),
        "compute": ({"grew": None, "own": 0.201}, {"grew": None, "own": 0.1999}),
    },
    false_alarms={
        "on a GPU, which computes with them as fast": {"gpu": True},
        "small but normal numbers": {"share": 0.0},
        "numbers that are flushed": {"flushed": 1.0, "kind": "weights"},
        "what is left of them in a thread that flushes, and is alone": {"flushed": 1.0, "threads": 1},
        "steps that are as long as before": {"grew": 1.0},
        "a machine that has become slower in all phases": {"grew": 1.3, "mood": 1.25},
        "a step that waits for input": {"own": 0.02},
        "from the start, on a CPU that multiplies them as fast as others": {"grew": None, "slow": False},
        "weights of that kind there, whatever the optimizer": {
            "grew": None,
            "slow": False,
            "kind": "weights",
            "optimizer": "Adam",
        },
    },
    severities=(
        ({}, "critical"),
        ({"grew": 1.2}, "high"),
        ({"grew": 1.11}, "medium"),
        ({"grew": None}, "medium"),
        ({"grew": None, "share": 0.0999}, "low"),
    ),
    best=({"grew": 2.0}, warm(2.0)),
    also_fires={
        "weights": {"kind": "weights"},
        "gradients": {"kind": "gradients"},
        "told to flush when the other threads had started": {"flushed": 1.0},
        "on one rank": {"on": (1,)},
        "from the start, on a CPU that is slow with them": {"grew": None, "slow": True},
        "roots of them, on any CPU": {"grew": None, "slow": False, "optimizer": "Adam"},
        "a fused update of them, on any CPU": {"grew": None, "slow": False, "fused": True},
        "a growth that was measured, on any CPU": {"slow": False},
    },
    not_measured={"tensors that nobody looked at": ({"share": None}, ("denormal.weights",))},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_cmp018_says_since_when_and_how_long_a_step_was_before() -> None:
    finding = found("CMP018", cmp018())
    assert finding.title.endswith("since step 830") and finding.scope == Affected(since_step=830)
    assert "500 ms before" in finding.evidence[1].note
    assert finding.saving is not None and finding.saving.speedup[0] == pytest.approx(1 / 0.65)


def test_cmp018_compares_at_the_speed_of_the_machine() -> None:
    same, slower, faster = (found("CMP018", cmp018(mood=mood)) for mood in (1.0, 1.2, 0.8))
    assert [finding.seconds_per_step for finding in (same, slower, faster)] == pytest.approx([0.5, 0.4, 0.6])
    assert (
        "current speed" not in same.evidence[1].note
        and "600 ms at the machine's current speed" in slower.evidence[1].note
    )
    assert slower.saving and slower.saving.speedup == pytest.approx((1 / (1 - 0.7 * 0.4), warm(2.0)))
    assert faster.saving and faster.saving.speedup == pytest.approx((1 / 0.65, warm(1 / 0.4)))


def test_cmp018_promises_nothing_for_numbers_that_were_there_from_the_start() -> None:
    finding = found("CMP018", cmp018(grew=None))
    assert finding.saving is None and finding.seconds_per_step == 0.0 and "unknown" in finding.evidence[1].note
    assert "since" not in finding.title


def test_cmp018_names_the_rank_that_has_them() -> None:
    assert found("CMP018", cmp018(on=(1,))).scope.ranks == (1,)


def test_cmp018_explains_an_optimizer_that_takes_long_and_a_job_that_became_slower() -> None:
    slower = job({0: rank()}, changes=())
    assert would_explain(slower, found("CMP018", cmp018())) == {"CMP014"}
    cause = found("CMP018", cmp018())
    consequence = replace(cause, rule="RUN003", circumstances=frozenset({"computing grew"}))
    assert is_cause(slower, cause, consequence)
    assert not is_cause(slower, cause, replace(consequence, circumstances=frozenset({"input grew"})))


def test_cmp018_asks_to_flush_earlier_where_the_call_came_too_late() -> None:
    early, late = (found("CMP018", cmp018(flushed=flushed)) for flushed in (0.0, 1.0))
    assert early.fixes[0].call is not None and early.fixes[0].change.startswith("torch.set_flush_denormal(True)")
    # the call is there: its line would be replaced by itself
    assert late.fixes[0].call is None and "before the first tensor" in late.fixes[0].title
    assert late.evidence[-1].note.startswith("the training thread flushes")
