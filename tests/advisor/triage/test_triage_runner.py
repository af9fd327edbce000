"""The groups of checks, one after another."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.documents.machine_triage import (
    SCHEMA,
    Band,
    Check,
    Triage,
    TriageGap,
    TriageVerdict,
    parse_triage,
)
from rn50_advisor.advisor.model.errors import NotATriage
from rn50_advisor.advisor.triage import triage_runner
from rn50_advisor.advisor.triage.found_checks import Found, TriageOptions, fact, unproved
from rn50_advisor.advisor.triage.triage_runner import conclude
from triage_samples import one


def test_a_group_that_fails_is_a_gap_and_the_others_go_on() -> None:
    def broken(setting: TriageOptions, idle: object) -> list[Found]:
        raise OSError(5, "Input/output error")

    (gap,) = triage_runner._of_group(triage_runner.CheckGroup("the disk", broken), TriageOptions(Path(), ""), None)  # type: ignore[arg-type]
    assert isinstance(gap, TriageGap) and gap.name == "the disk" and "Input/output error" in gap.reason


@pytest.mark.parametrize(
    ("found", "state"),
    [
        ([one(100, "hand-back"), one(100, "fix")], "keep"),
        ([one(60, "hand-back")], "keep"),  # low is no reason to give a machine back
        ([one(40, "hand-back")], "hand-back"),
        ([one(60, "fix")], "fix"),
        ([one(40, "fix"), one(60, "hand-back")], "fix"),
        ([one(40, "fix"), one(40, "hand-back")], "hand-back"),
        ([one(1, "note")], "keep"),
        ([unproved(one(1, "hand-back"), "others were busy")], "keep"),
        ([], "keep"),
    ],
)
def test_the_verdict_comes_from_what_can_be_changed_by_whom(found: list[Found], state: str) -> None:
    assert conclude(found).verdict.state == state


def test_reasons_name_what_is_wrong_and_a_keep_says_what_it_rests_on() -> None:
    assert conclude([one(40, "hand-back", "a"), one(40, "fix", "b")]).verdict.reasons == ("a why", "b why")
    kept = conclude([one(100, "fix"), one(60, "hand-back", "slow"), TriageGap("gpu.*", "none here")]).verdict
    assert kept.reasons[0] == "1 of 2 checks with a band are inside it"
    assert kept.reasons[1] == "low: slow why" and "1 could not be measured" in kept.reasons[2]


@pytest.mark.parametrize("beside", [one(100, "fix"), one(60, "fix"), one(40, "hand-back")])
def test_what_is_bad_and_yet_no_reason_to_act_is_named_last(beside: Found) -> None:
    verdict = conclude([one(1, "note", "disk"), beside, one(60, "note", "merely low")]).verdict
    assert [reason for reason in verdict.reasons if reason.startswith("worth noting: ")] == ["worth noting: disk why"]
    assert verdict.state == "keep" or verdict.reasons[-1].startswith("worth noting: ")


def sample() -> Triage:
    checks = (
        Check("decode", 310.0, "images/s", Band(174.0, None, "a table"), "ok", ""),
        Check("strange", math.nan, "", Band(None, 1.0, "a rule"), "unknown", "no number"),
        fact("cpu.model", "AMD EPYC").check,
    )
    return Triage(TriageVerdict("fix", ("why",)), checks, (TriageGap("gpu.*", "no driver", "install one"),))


def test_the_json_is_the_contract_to_the_letter() -> None:
    document = json.loads(json.dumps(sample().as_json(), allow_nan=False))
    assert list(document) == ["schema", "verdict", "checks", "gaps"]
    assert document["schema"] == SCHEMA == "rn50-advisor/triage/1"
    assert document["verdict"] == {"state": "fix", "reasons": ["why"]}
    assert list(document["checks"][0]) == ["name", "value", "unit", "expected", "state", "hint"]
    assert document["checks"][0]["expected"] == {"lo": 174.0, "hi": None, "source": "a table"}
    assert document["checks"][1]["value"] is None
    assert document["gaps"] == [{"name": "gpu.*", "reason": "no driver", "hint": "install one"}]


def test_a_result_is_read_back_as_it_was() -> None:
    made = conclude([one(60, "fix"), fact("cpu.model", "AMD EPYC"), TriageGap("a", "b")])
    assert parse_triage(json.dumps(made.as_json())) == made


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"schema": "rn50-advisor/triage/2"}',
        '{"schema": "rn50-advisor/triage/1"}',
        '{"schema": "rn50-advisor/triage/1", "verdict": {"state": "keep", "reasons": []}, "checks": [{"name": "x"}], "gaps": []}',
    ],
)
def test_anything_else_is_no_triage(text: str) -> None:
    with pytest.raises(NotATriage):
        parse_triage(text)
