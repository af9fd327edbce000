"""The table of triages: which results count as expected, and which runs are missing. No machine is examined here."""

from __future__ import annotations

import pytest
from samples.gpus.machines import MACHINES
from triages import CASES, Seen, as_expected, markdown, row, seen, to_do

from rn50_advisor.advisor.model.documents.machine_triage import (
    Band,
    Check,
    CheckState,
    Triage,
    TriageState,
    TriageVerdict,
)

pytest.importorskip("torch")  # its version is in the table's heading


@pytest.mark.parametrize(
    ("verdict", "state", "seconds", "expected"),
    [
        ("hand-back", "bad", 80.0, True),
        ("hand-back", "low", 120.0, True),
        ("hand-back", "bad", 120.1, False),  # longer than promised
        ("fix", "bad", 80.0, False),
        ("hand-back", "ok", 80.0, False),  # the right verdict for another reason
    ],
)
def test_a_verdict_is_right_for_its_own_reason_and_in_time(
    verdict: TriageState, state: CheckState, seconds: float, expected: bool
) -> None:
    checks = (Check("gpu.3.throttled_share", 0.6, "share", Band(None, 0.05), state),)
    one = seen("throttled", seconds, Triage(TriageVerdict(verdict, ("GPU 3 is hot",)), checks))
    assert as_expected([one]) == expected
    assert row("throttled", [one])[-2:] == ("yes" if expected else "no", "GPU 3 is hot")


def test_what_does_not_speak_of_the_fault_at_all_is_wrong() -> None:
    assert not as_expected([seen("throttled", 80.0, Triage(TriageVerdict("hand-back", ("another reason",))))])


def test_of_ten_clean_triages_all_have_to_keep_the_machine() -> None:
    kept = [Seen("clean", 70.0 + n, "keep", "40 of 41", True) for n in range(9)]
    assert as_expected(kept) and not as_expected([*kept, Seen("clean", 70.0, "fix", "busy", True)])
    assert row("clean", kept)[2:4] == ("keep 9 of 9", "74 (70 … 78)")


def test_a_second_call_goes_on_where_the_first_ended() -> None:
    had = [Seen("clean", 70.0, "keep", "", True)] * 8 + [Seen("gpus", 60.0, "keep", "", True)]
    assert list(to_do(["clean", "gpus", "throttled"], had)) == ["clean", "clean", "throttled"]


def test_the_table_has_each_case_and_says_what_was_not_run() -> None:
    text = markdown([Seen("gpus", 61.0, "keep", "31 of 31 | sound", True)])
    assert all(f"| {case.title} |" in text for case in CASES.values())
    assert text.count("not run") == len(CASES) - 1 and "`make triages`" in text


def test_each_machine_of_the_table_is_there() -> None:
    assert {case.gpus for case in CASES.values()} - {""} <= set(MACHINES)
