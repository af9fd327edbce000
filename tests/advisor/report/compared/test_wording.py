"""A comparison of runs in words: signs, intervals, and what may be none."""

from __future__ import annotations

from dataclasses import replace

import pytest

from noisy_runs import noisy_run
from rn50_advisor.advisor.model.documents.comparison import (
    WHOLE_STEP,
    Change,
    Comparison,
    Estimate,
    FindingChange,
    Gate,
    PhaseDelta,
    RunColumn,
)
from rn50_advisor.advisor.report.compared import wording
from rn50_advisor.advisor.run_comparison import compare


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare((noisy_run("before", 1), noisy_run("after", 2), noisy_run("last", 3)))


@pytest.mark.parametrize(
    ("change", "word"),
    [("improved", "▲ improved"), ("regressed", "▼ regressed"), ("same", "= same"), ("unknown", "? not comparable")],
)
def test_a_glyph_goes_with_its_word(change: Change, word: str) -> None:
    assert wording.change_word(change) == word


def test_the_headline_names_both_runs_and_the_ratio_where_there_is_one(comparison: Comparison) -> None:
    pair = replace(comparison.pairs[0], speed=Estimate(1.4849, 1.3, 1.6), measure="samples/s")
    assert wording.headline(comparison, pair) == "after against before: 1.48× (1.30–1.60) in samples/s"
    assert wording.headline(comparison, replace(pair, speed=None)) == "after against before"


@pytest.mark.parametrize(
    ("change", "speed", "heading"),
    [
        ("improved", Estimate(1.4849, 1.3, 1.6), "1.48× as fast (1.30–1.60)"),
        ("same", Estimate(2.0, 0.9, 4.6), "No difference found: 2.00× (0.90–4.60)"),
        ("unknown", None, "Not comparable"),
    ],
)
def test_a_pages_heading_is_the_result_and_no_names(
    comparison: Comparison, change: Change, speed: Estimate | None, heading: str
) -> None:
    pair = replace(comparison.pairs[0], change=change, speed=speed, measure="samples/s")
    assert wording.page_heading(pair) == heading
    assert wording.names(comparison, pair) == "after against before" + (", in samples/s" if speed else "")


def test_phases_of_a_run_sum_to_its_step(comparison: Comparison) -> None:
    change = Estimate(0.0, 0.0, 0.0)
    phases = (PhaseDelta("forward", 0.06, 0.03, change), PhaseDelta(WHOLE_STEP, 0.1, 0.03, change))
    pair = replace(comparison.pairs[0], phases=phases)
    assert wording.phase_seconds(pair, "base_s") == pytest.approx({"forward": 0.06, "unattributed": 0.04})
    assert wording.phase_seconds(pair, "other_s") == {"forward": 0.03}
    assert wording.phase_seconds(replace(pair, phases=()), "base_s") == {}
    more = replace(pair, phases=(*phases, PhaseDelta("unattributed", 0.05, 0.02, change)))
    assert wording.phase_seconds(more, "base_s") == pytest.approx({"forward": 0.06, "unattributed": 0.04})
    assert sum(wording.phase_seconds(more, "other_s").values()) == pytest.approx(0.03), (
        "bar and table say the same step"
    )


def test_a_finding_is_a_row_with_its_costs() -> None:
    gone = FindingChange("DAT003", "Slow", "gone", 0.1, None)
    assert wording.finding_row(gone) == ["✓ gone", "Slow", "DAT003", "100 ms", "–"]
    assert len(wording.FINDING_COLUMNS) == 5


def test_ratios_and_shares_have_their_intervals() -> None:
    assert wording.ratio(Estimate(0.00203, 0.0018, 145.2)) == "0.0020× (0.0018–145)", "never rounded to zero"
    assert wording.ratio(None) == wording.share(None) == "–"
    assert wording.share(Estimate(0.87, 0.84, 0.9)) == "87 % (84–90)"


@pytest.mark.parametrize(
    ("rule", "verdict", "shown"),
    [("DAT003", "bottleneck", "▲ DAT003"), (None, "healthy", "✓ healthy"), (None, "inconclusive", "? inconclusive")],
)
def test_a_run_is_a_row_with_its_verdict(rule: str | None, verdict: str, shown: str) -> None:
    run = RunColumn("before", None, (), 1024, 2000.0, None, 0.1, 50, None, verdict, rule, "Title")  # type: ignore[arg-type]
    assert wording.run_row(run) == ["before", "1,024", "2,000", "–", "–", "100 ms", shown]
    assert len(wording.RUN_COLUMNS) == 7


@pytest.mark.parametrize(
    ("lo", "value", "hi", "shown"),
    [
        (0.001, 0.002, 0.003, "+2.00 ms"),
        (-0.003, -0.002, -0.001, "−2.00 ms"),
        (-0.001, 0.002, 0.003, "(+2.00 ms)"),
        (-0.003, -0.002, 0.0, "(−2.00 ms)"),
    ],
)
def test_a_difference_that_may_be_none_stands_in_brackets(lo: float, value: float, hi: float, shown: str) -> None:
    row = wording.phase_row(PhaseDelta("input_wait", 0.1, 0.1 + value, Estimate(value, lo, hi)))
    assert row[0] == "waiting for input" and row[1] == "100 ms" and row[3] == shown
    assert row[4] == f"{wording.signed(lo)} … {wording.signed(hi)}" and len(row) == len(wording.PHASE_COLUMNS)


def test_the_whole_step_is_called_so_and_nothing_has_no_sign() -> None:
    assert wording.phase_row(PhaseDelta(WHOLE_STEP, 0.1, 0.1, Estimate(0.0, 0.0, 0.0)))[0] == "whole step"
    assert wording.signed(0.0) == "0 s"


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (FindingChange("DAT003", "Slow", "appeared", None, 0.1), "+ appeared: Slow (DAT003), 100 ms per step"),
        (FindingChange("DAT003", "Slow", "gone", 0.1, None), "✓ gone: Slow (DAT003), 100 ms per step"),
        (FindingChange("DAT003", "Slow", "stays", 0.1, 0.2), "= stays: Slow (DAT003), 100 ms → 200 ms per step"),
        (FindingChange("RUN001", "Hangs", "stays", None, None), "= stays: Hangs (RUN001)"),
    ],
)
def test_a_finding_is_shown_with_its_cost(change: FindingChange, said: str) -> None:
    assert wording.finding(change) == said


@pytest.mark.parametrize(
    ("gate", "said"),
    [
        (None, ""),
        (Gate(0.05, (), ()), "no run is significantly slower by more than 5.0 %"),
        (Gate(0.1, (1, 2), (2,)), "slower by more than 10 %: after, last"),
        (Gate(0.1, (), (2,)), "could not be compared: last"),
    ],
)
def test_the_limit_names_who_broke_it(comparison: Comparison, gate: Gate | None, said: str) -> None:
    assert wording.gate(replace(comparison, gate=gate)) == said
