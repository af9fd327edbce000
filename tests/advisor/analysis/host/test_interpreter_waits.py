"""From looks at training threads to the share of a step that they wait for the interpreter, and to who had it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, MS, plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.gpu.gpu_pace import Holder
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.probes.rank.layout import FLAG_CLOCKED, FLAG_NO_LOADER

CPU = {"forward_cpu": 30, "backward_cpu": 50, "optimizer_cpu": 10, "flags": FLAG_CLOCKED}
USER = {"function": "send", "file": "/job/train.py", "line": 31}


def looks(waiting: int, *, at_ms: float = 1500, count: int = 30, rank: int = 0) -> Event:
    """A group of looks that ended this long after the start of the first step."""
    end = FIRST_STEP_NS + round(at_ms * MS)
    data = {"since_ns": end - 200 * MS, "looks": count, "waiting": waiting}
    return Event(end, "interpreter", 100 + rank, rank, data)


def holder(thread: str = "sender", user: dict[str, Any] | None = USER, rank: int = 0) -> Event:
    frames = [{"function": "encode", "file": "/usr/lib/python3.11/json/encoder.py", "line": 200}]
    data = {"thread": thread, "frames": frames, "user": user}
    return Event(FIRST_STEP_NS + 1500 * MS, "holder", 100 + rank, rank, data)


def analysed(
    *events: Event, ranks: int = 1, facts: dict[int, dict[str, Any]] | None = None, **given: float
) -> Analysis:
    """Thirty steps of 100 ms a rank."""
    return analyse(recording({n: plan(30, **{**CPU, **given}) for n in range(ranks)}, events=events, facts=facts or {}))


def test_the_share_of_the_samples_is_that_of_the_step() -> None:
    found = analysed(looks(6), looks(12, at_ms=1800))
    assert found.value("interpreter.waiting_share", 0) == pytest.approx(0.3)
    assert found.value("interpreter.lost_s", 0) == pytest.approx(0.03)
    assert 0.05 < found.value("interpreter.error", 0) < 0.07


def test_a_rank_is_not_sampled_while_it_evaluates() -> None:
    assert analysed(looks(15), evaluation=100).value("interpreter.lost_s", 0) == pytest.approx(0.05)


def test_groups_that_differ_give_a_larger_error() -> None:
    alike = analysed(*(looks(6, at_ms=1000 + 300 * n) for n in range(6)))
    uneven = analysed(*(looks(12 * (n % 2), at_ms=1000 + 300 * n) for n in range(6)))
    assert uneven.value("interpreter.waiting_share", 0) == alike.value("interpreter.waiting_share", 0)
    assert uneven.value("interpreter.error", 0) > 2 * alike.value("interpreter.error", 0)


def test_zero_waiting_samples_are_a_measurement_and_too_few_samples_are_not() -> None:
    assert analysed(looks(0)).value("interpreter.waiting_share", 0) == 0.0
    few = analysed(looks(10, count=20))
    assert not few.has("interpreter.waiting_share") and few.missing["interpreter.waiting_share"]
    assert not analysed(looks(10, at_ms=-500)).has("interpreter.waiting_share"), "before the steady steps"


def test_a_refusal_is_the_reason_that_nothing_was_measured() -> None:
    run = recording({0: plan(30, **CPU)})
    refused = replace(run, gaps=(ProbeGap("interpreter", "pid:100", "not permitted"),))
    assert analyse(refused).missing["interpreter.waiting_share"] == "not permitted"


def test_who_had_it_most_often_is_named_with_the_users_line() -> None:
    found = analysed(looks(6), holder(), holder(), holder("monitor", {**USER, "line": 50}))
    assert found.holders == (Holder(0, "sender", "send", Where("/job/train.py", 31), 2, 3),)
    assert analysed(looks(6), holder(user=None)).holders == (Holder(0, "sender", "encode", None, 1, 1),)


def asleep(**given: Any) -> float:
    return analysed(**given).value("step.asleep_s", 0)


def test_time_of_the_model_that_no_clock_explains_is_asleep() -> None:
    assert asleep() == pytest.approx(0.0)
    assert asleep(forward_cpu=10, backward_cpu=40) == pytest.approx(0.03)
    assert asleep(forward_cpu=10, run_delay=15) == pytest.approx(0.005), "in line for a core"
    assert asleep(optimizer=5, clip=5) == pytest.approx(0.0), "clipping computes with the optimizer"


def test_before_the_backward_a_loop_without_a_loader_may_fetch() -> None:
    without_loader = FLAG_CLOCKED | FLAG_NO_LOADER
    assert asleep(flags=without_loader, forward_cpu=0) == pytest.approx(0.0)
    assert asleep(flags=without_loader, forward_cpu=0, backward_cpu=20) == pytest.approx(0.03)


def test_waiting_for_another_rank_is_not_asleep() -> None:
    slow = plan(30, **{**CPU, "backward": 90, "backward_cpu": 90})
    found = analyse(recording({0: plan(30, **CPU), 1: slow}, wire_ms=5))
    assert found.by_rank("step.asleep_s") == pytest.approx({0: 0.0, 1: 0.0}, abs=1e-6)


def test_of_ranks_that_exchange_untimed_nobody_knows() -> None:
    found = analyse(recording({0: plan(30, **CPU), 1: plan(30, **CPU)}, ddp=False))
    assert not found.has("step.asleep_s") and "ranks wait for each other" in found.missing["step.asleep_s"]


@pytest.mark.parametrize("facts", [{"cuda": {"devices": 1}}, {"run_delay": False}])
def test_a_host_that_waits_for_its_gpu_is_not_asleep_nor_is_one_without_clocks(facts: dict[str, Any]) -> None:
    found = analysed(forward_cpu=0, facts={100: facts})
    assert not found.has("step.asleep_s") and found.missing["step.asleep_s"]
