"""A request says which variant each step has; what is no request is refused as a whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.run.sidefiles.recorder_requests import try_out
from rn50_advisor.probes.rank.trials.trial_request import NEVER, Outcomes, Refused, TrialRequest, read_request

LIVE = {"variants": [[], [{"kind": "a"}, {"kind": "b"}]], "from_step": 20, "block_steps": 12, "order": [0, 1, 1, 0]}


def test_the_variant_is_a_function_of_the_steps_number_alone() -> None:
    request = TrialRequest({"changes": [], "live": LIVE})
    starts = {0: 0, 19: 0, 20: 0, 31: 0, 32: 1, 43: 1, 44: 1, 55: 1, 56: 0, 67: 0, 68: 0, 80: 1}
    assert {step: request.variant_at(step) for step in starts} == starts
    assert [request.next_block(step) for step in (0, 19, 20, 31, 32)] == [20, 20, 32, 32, 44]


def test_changes_are_counted_through_the_request() -> None:
    request = TrialRequest({"changes": [{"kind": "c"}], "live": LIVE})
    assert request.changes == [(0, {"kind": "c"})]
    assert request.variants == [[], [(1, {"kind": "a"}), (2, {"kind": "b"})]] and request.count == 3


def test_without_variants_nothing_is_ever_switched(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    try_out(tmp_path, {"changes": [], "live": None})
    request = read_request(str(tmp_path))
    assert (request.variants, request.next_block(7), request.count) == ([], NEVER, 0)


@pytest.mark.parametrize(
    "document",
    [
        [],
        {"changes": ["DataLoader"]},
        {"changes": {"kind": "call"}},
        {"live": {**LIVE, "order": []}},
        {"live": {**LIVE, "order": [2]}},
        {"live": {**LIVE, "block_steps": 0}},
        {"live": {"variants": [[]]}},
    ],
    ids=json.dumps,
)
def test_what_is_no_request_is_not_read(document: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError)):
        TrialRequest(document)


def test_outcomes_keep_the_first_reason_and_tell_what_is_new() -> None:
    outcomes, news = Outcomes(2), []
    outcomes.changed = lambda: news.append(outcomes.facts())
    outcomes.applied(1)
    outcomes.applied(1)
    outcomes.refused(0, Refused("it has no argument workers"))
    outcomes.refused(0, ValueError("later"))
    outcomes.switched(32, 1)
    assert outcomes.facts() == {
        "applied": [[0, 0], [1, 2]],
        "refused": [(0, "it has no argument workers")],
        "switches": [[32, 1]],
    }
    assert len(news) == 2
    outcomes.refused(1, ValueError("x" * 1000))
    assert outcomes.facts()["refused"][1][1] == "ValueError: " + "x" * 288
