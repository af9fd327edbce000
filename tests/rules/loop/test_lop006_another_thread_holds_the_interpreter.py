"""LOP006, another thread holds the interpreter: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured, Where
from rn50_advisor.advisor.model.gpu.gpu_pace import Holder
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import SCRIPT, job, rank
from rule_runs import RULES, found
from rule_table import Table, waits, warm
from table_checks import Check, checks


def lop006(
    share: float = 0.2,
    error: float = 0.01,
    other: float = 0.5,
    *,
    asleep: float | None = None,
    looked: bool = True,
    seen: bool = True,
    everywhere: bool = False,
    **more: Any,
) -> Analysis:
    """Rank 1 waits for the interpreter for this share of its second; rank 0 needs `other` seconds by itself."""
    held = (0, 1) if everywhere else (1,)
    values: dict[str, Any] = {"step.asleep_s": {1: share if asleep is None else asleep}}
    if looked:
        values["interpreter.waiting_share"] = {0: 0.0, **dict.fromkeys(held, share)}
        values["interpreter.error"] = dict.fromkeys((0, 1), error)
        values["interpreter.lost_s"] = {0: 0.0, **dict.fromkeys(held, share)}
    threads = (Holder(1, "sender", "send_metrics", Where(SCRIPT, 77), 4, 5),) if seen else ()
    return job({0: rank(other), 1: rank()}, **{"values": values, "holders": threads, **more})


TABLE = Table(
    "LOP006",
    lop006,
    lines={
        "waiting": ({"share": 0.05}, {"share": 0.0499}),
        "sure": ({"error": 0.0666}, {"error": 0.0667}),
    },
    false_alarms={
        "a thread that prefetches has it for a twentieth of the time": {"share": 0.04},
        "it sleeps, but not for the interpreter": {"share": 0.0, "asleep": 0.4},
        "a look or two by chance": {"share": 0.07, "error": 0.03},
        "another rank takes as long": {"other": 1.0},
        "no samples because no time is unexplained": {"looked": False, "asleep": 0.02},
    },
    severities=waits("share"),
    ranks=(1,),
    where=Where(SCRIPT, 77),
    best=({"share": 0.4, "other": 0.8}, warm(1 / 0.8)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_lop006_names_thread_function_and_line() -> None:
    finding = found("LOP006", TABLE.job())
    assert finding.title == "GIL contention: another thread holds the interpreter on rank 1"
    assert "what send_metrics does to a separate process" in finding.fixes[0].title
    assert any(
        e.value == "4 of 5" and f"sender had it, in send_metrics at {SCRIPT}:77" in e.note for e in finding.evidence
    )
    blind = found("LOP006", TABLE.job(seen=False))
    assert blind.fixes[0].where is None and blind.confidence < finding.confidence


def test_lop006_promises_less_at_worst_where_no_core_is_left_for_the_work() -> None:
    """Two ranks train, and the thread of one wants a third core; at best neither waits for a core any more."""
    full, room = (
        found("LOP006", TABLE.job(other=0.8, cores=2.0)).saving,
        found("LOP006", TABLE.job(other=0.8, cores=3.0)).saving,
    )
    assert full is not None and room is not None
    assert room.seconds_per_step[0] == pytest.approx(0.18)
    assert full.seconds_per_step[0] == pytest.approx(0.18 - 0.1)
    assert full.seconds_per_step[1] > room.seconds_per_step[1]


def test_lop006_names_no_rank_where_all_wait() -> None:
    assert found("LOP006", TABLE.job(everywhere=True, other=1.0)).scope.ranks == ()


def test_lop006_is_not_measured_if_time_is_unexplained_and_no_samples_were_taken() -> None:
    result = run_rule(RULES["LOP006"], lop006(looked=False), Config())
    assert result == NotMeasured("LOP006", ("interpreter.waiting_share",))


def test_lop006_promises_by_the_samples_and_their_error() -> None:
    """A step of one second, a fifth of it waiting, plus or minus two hundredths; at best seven tenths of the rest remain."""
    saving = found("LOP006", TABLE.job()).saving
    assert saving is not None
    least = 0.7 * 0.78
    assert saving.seconds_per_step == pytest.approx((0.18, 1.0 - least * (1.0 - 0.15 * (1.0 - least))))
