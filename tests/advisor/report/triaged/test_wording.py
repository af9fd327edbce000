"""Checks of a triage in words, the worst first."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.documents.machine_triage import (
    UNIX_SECONDS,
    Band,
    Check,
    CheckState,
    Triage,
    TriageState,
    TriageVerdict,
)
from rn50_advisor.advisor.report.triaged import wording


def check(
    name: str = "disk.sync_ms",
    value: float | str | None = 2.0,
    unit: str = "ms",
    *,
    state: CheckState = "ok",
    **band: float,
) -> Check:
    return Check(name, value, unit, Band(**band), state)


@pytest.mark.parametrize(
    ("state", "words"),
    [("keep", "✓ keep this machine"), ("fix", "▲ fix a setting"), ("hand-back", "✗ replace this machine")],
)
def test_a_verdict_is_a_glyph_and_words(state: TriageState, words: str) -> None:
    assert wording.verdict(Triage(TriageVerdict(state, ()))) == words


@pytest.mark.parametrize(
    ("value", "unit", "shown"),
    [
        (94.25, "MB/s", "94.2 MB/s"),
        (0.05, "share", "5.0 %"),
        ("NVIDIA H100", "", "NVIDIA H100"),
        (None, "MB/s", "–"),
        ("", "", "–"),
        (1767225600.0, UNIX_SECONDS, "2026-01-01 00:00:00 UTC"),
    ],
)
def test_a_value_has_its_unit(value: float | str | None, unit: str, shown: str) -> None:
    assert wording.value(check(value=value, unit=unit)) == shown


@pytest.mark.parametrize(
    ("band", "shown"),
    [({"lo": 94.0}, "≥ 94 MB/s"), ({"hi": 5.0}, "≤ 5 MB/s"), ({"lo": 1.0, "hi": 2.0}, "≥ 1 MB/s, ≤ 2 MB/s"), ({}, "–")],
)
def test_what_is_expected_has_its_ends(band: dict[str, float], shown: str) -> None:
    assert wording.expected(check(unit="MB/s", **band)) == shown


def test_the_worst_comes_first_and_facts_are_apart() -> None:
    checks = (
        check("a", lo=0.0),
        check("fact", "x86", ""),
        check("b", state="unknown"),
        check("c", state="bad", hi=0.0),
        check("d", state="low", hi=0.0),
        check("e", state="bad", lo=0.0),
    )
    triage = Triage(TriageVerdict("fix", ()), checks)
    assert [one.name for one in wording.judged(triage)] == ["c", "e", "d", "b", "a"]
    assert [one.name for one in wording.facts(triage)] == ["fact"]
    assert [wording.state(one) for one in wording.judged(triage)] == ["✗ bad", "✗ bad", "! low", "? unknown", "✓ ok"]
