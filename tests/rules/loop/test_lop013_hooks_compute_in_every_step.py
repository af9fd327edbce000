"""LOP013, hooks compute in every step: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest

from host_rule_cases import hot
from rn50_advisor.advisor.model.analysis import Analysis, HookPile
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, job, rank
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks


def piled(
    lost_s: float, *, spread: float = 0.0, phase: Literal["forward", "backward"] = "forward", rank: int = 0, **more: Any
) -> HookPile:
    """Hooks that a loop registers in each step, four of them."""
    about = {
        "kind": "register_forward_hook", "function": "Watch.on.<locals>.hook", "function_at": "hooks.py:3", "file": SCRIPT, "line": 31,
        "registered": True, "count": 996, "added": 992, "steps": 248,
    }  # fmt: skip
    return HookPile(rank=rank, phase=phase, lost_s=(lost_s - spread, lost_s + spread), **{**about, **more})


def lop013(
    spends: float = 0.2,
    *,
    backward: float = 0.6,
    samples: int = 80,
    seen: bool = True,
    pile_s: float | None = None,
    **more: Any,
) -> Analysis:
    """A rank that spends so many seconds of its second in hooks, or loses so many to hooks that pile up."""
    if pile_s is not None:
        more, spends = {**more, "piled_hooks": (piled(pile_s),)}, 0.0
    line = replace(hot(57, "watch", io=False), samples=samples)
    values = {"step.hooks_s": {0: spends}} if seen else {}
    own = {0: rank(forward=1.0 - backward, backward=backward)}
    return job(own, values=values, hook_lines=(line,) if seen else (), **more)


TABLE = Table(
    "LOP013",
    lop013,
    lines={
        "watching": ({"spends": 0.0801}, {"spends": 0.0799}),
        "piled": ({"pile_s": 0.0501}, {"pile_s": 0.0499}),
    },
    false_alarms={
        "too few samples of the line to name it": {"samples": 9},
        "a norm of a little time": {"spends": 0.04},
        "hooks that pile up and take no time": {"pile_s": 0.0},
    },
    severities=(({"spends": 0.3}, "critical"), ({"spends": 0.15}, "high"), ({"spends": 0.0801}, "medium")),
    where=Where(SCRIPT, 57),
    not_measured={"without a profile": ({"seen": False}, ("step.hooks_s",))},
    best=({"spends": 0.3, "samples": 10_000}, warm(1 / (1 - 0.3 * 1.015))),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_hook_its_line_and_how_often_it_should_run() -> None:
    finding = found("LOP013", lop013())
    assert finding.title == "Compute in hooks in every step: watch"
    assert "train.py:57 in watch" in finding.evidence[1].note and "% 100" in finding.fixes[0].change


def test_at_worst_a_quarter_of_it_remains() -> None:
    saving = found("LOP013", lop013(0.4, samples=10_000)).saving
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.3, abs=0.01)


def test_hooks_that_pile_up_are_registered_once() -> None:
    finding = found("LOP013", lop013(pile_s=0.2))
    assert finding.title == "Hooks pile up: hook is registered again in each step"
    (fix,) = finding.fixes
    assert (
        fix.where == Where(SCRIPT, 31)
        and fix.title == "register hook once, before the loop"
        and "remove()" in fix.change
    )
    assert "% 100" not in fix.change
    assert "996" in finding.evidence[0].note and "992 added within 248 steps" in finding.evidence[1].note


def test_without_the_call_its_name_is_said() -> None:
    (fix,) = found("LOP013", lop013(piled_hooks=(piled(0.2, registered=False, added=100),), spends=0)).fixes
    assert fix.title == "register hook once, before the loop, where register_forward_hook is called"


def test_hooks_that_pile_up_need_no_profile() -> None:
    assert found("LOP013", lop013(seen=False, piled_hooks=(piled(0.2),))).title.startswith("Hooks pile up")


def test_the_gain_is_what_was_measured_at_least_and_at_most() -> None:
    saving = found("LOP013", lop013(piled_hooks=(piled(0.3, spread=0.1),), spends=0)).saving
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.2)
    assert saving.seconds_per_step[1] == pytest.approx(0.4, abs=0.05)


def test_hooks_that_pile_up_in_two_phases_both_count() -> None:
    both = (piled(0.2), piled(0.1, phase="backward"))
    assert found("LOP013", lop013(piled_hooks=both, spends=0)).seconds_per_step == pytest.approx(0.3)


def test_a_watching_hook_that_piles_up_is_registered_once_first() -> None:
    pile = piled(0.0, function="watch")
    fixes = found("LOP013", lop013(0.3, piled_hooks=(pile,))).fixes
    assert [fix.title for fix in fixes] == [
        "register watch once, before the loop",
        "let the hook work in every hundredth step",
    ]


def test_handlers_of_a_logger_that_pile_up() -> None:
    handlers = piled(0.2, kind="addHandler", function="StreamHandler.emit")
    finding = found("LOP013", lop013(piled_hooks=(handlers,), spends=0))
    assert finding.title == "Log handlers pile up: StreamHandler is registered again in each step"
    (fix,) = finding.fixes
    assert "logger.handlers" in fix.change and "remove()" not in fix.change
