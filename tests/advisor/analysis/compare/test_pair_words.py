"""Why one run is slower or faster than another, and what disturbed them, in words."""

from __future__ import annotations

import pytest

from noisy_runs import noisy_run, pair_of
from rn50_advisor.advisor.analysis.compare.pair_words import reasons, span
from rn50_advisor.advisor.model.documents.comparison import WHOLE_STEP, Change, Estimate, FindingChange, PhaseDelta


def delta(phase: str, value_ms: float, width_ms: float = 1.0) -> PhaseDelta:
    low, value, high = ((value_ms + way * width_ms) / 1e3 for way in (-1, 0, 1))
    return PhaseDelta(phase, 0.1, 0.1 + value, Estimate(value, low, high))


PHASES = (
    delta("input_wait", 20),
    delta("forward", 30, 40),
    delta("backward", 60),
    delta("optimizer", 5),
    delta("comm_exposed", -15),
    delta(WHOLE_STEP, 100),
)


def test_the_phases_that_changed_most_and_beyond_chance_come_first() -> None:
    assert reasons("regressed", PHASES, (), None) == "per step +60.0 ms backward, +20.0 ms waiting for input"
    faster = tuple(delta(each.phase, -1e3 * each.delta_s.value) for each in PHASES)
    assert reasons("improved", faster, (), None).startswith("per step −60.0 ms backward, −30.0 ms forward")


@pytest.mark.parametrize(
    ("change", "verdict", "said"),
    [
        ("regressed", "GPU001", "appeared: Thermal throttling (GPU001)"),
        ("regressed", None, "appeared: Straggler (COM002)"),
        ("improved", None, "gone: No workers (DAT003)"),
    ],
)
def test_the_finding_of_the_slower_runs_verdict_is_named(change: Change, verdict: str | None, said: str) -> None:
    findings = (
        FindingChange("COM002", "Straggler", "appeared", None, 0.08),
        FindingChange("GPU001", "Thermal throttling", "appeared", None, 0.05),
        FindingChange("DAT003", "No workers", "gone", 0.3, None),
        FindingChange("CPU009", "Threads", "stays", 0.9, 0.9),
    )
    assert reasons(change, (), findings, verdict) == said
    assert reasons(change, PHASES, findings, verdict).endswith(f"input; {said}")


def test_without_a_reason_the_interval_is_given_and_small_ratios_are_not_zero() -> None:
    assert reasons("regressed", (delta(WHOLE_STEP, 0),), (), None) == ""
    assert span("regressed", Estimate(0.002, 0.0018, 0.0021)) == "between 0.0018 and 0.0021 times as fast"
    pair = pair_of(noisy_run("before", 1), noisy_run("after", 2, scale=1.5, samples=16))
    assert pair.why.startswith("between ") and not pair.phases, "another batch size: phases are not compared"


def test_the_comparison_gives_the_reason() -> None:
    pair = pair_of(noisy_run("before", 1), noisy_run("after", 2, input_wait=60))
    assert "waiting for input" in pair.why and "times as fast" not in pair.why
