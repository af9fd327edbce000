"""The result of `try` as a document: what is written is what is read."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

import trial_samples as samples
from rn50_advisor.advisor.model.trials import PastTrial, Predicted, Tried, from_json, rule_records


@pytest.mark.parametrize("made", [samples.several, samples.without_gain, samples.undecided, samples.nothing_tried])
def test_a_document_is_read_as_it_was_written(made: Callable[[], Tried]) -> None:
    assert from_json(json.loads(json.dumps(made().as_json()))) == made()


def test_the_contract() -> None:
    document = samples.several().as_json()
    assert document["schema"] == "rn50-advisor/try/1" and document["best"] == "DAT003"
    assert document["together"] == {"speedup": 1.71, "lo": 1.65, "hi": 1.78, "pairs": 8}
    first = document["trials"][0]
    assert first["predicted"] == {"likely": 1.45, "lo": 1.3, "hi": 1.6} and first["outcome"] == "faster"
    assert samples.without_gain().as_json()["best"] is None


def damaged(document: dict[str, Any], *path: Any, value: Any) -> dict[str, Any]:
    at: Any = document
    for key in path[:-1]:
        at = at[key]
    at[path[-1]] = value
    return document


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("schema",), "rn50-advisor/compare/1"),
        (("trials",), None),
        (("trials", 0, "outcome"), "wonderful"),
        (("trials", 0, "numbers"), ["same"]),
        (("trials", 0, "measured"), {"speedup": 1.0}),
        (("together",), 3),
        (("took_s",), "soon"),
    ],
)
def test_another_document_is_refused(path: tuple[Any, ...], value: Any) -> None:
    document = json.loads(json.dumps(samples.several().as_json()))
    with pytest.raises(ValueError):
        from_json(damaged(document, *path, value=value))


def test_the_best_is_the_largest_gain_that_was_measured() -> None:
    several = samples.several()
    assert several.best == samples.WORKERS
    assert replace(several, trials=several.trials[1:]).best == samples.AUTOCAST


@pytest.mark.parametrize(
    ("past", "foretold"),
    [
        (samples.PAST[0], True),
        (samples.PAST[1], False),
        (samples.PAST[2], None),
        (samples.PAST[3], False),
        (replace(samples.PAST[0], predicted=None), None),
        (replace(samples.PAST[0], measured=None), None),
        (replace(samples.PAST[3], predicted=Predicted(None, 1.0, 1.1)), True),
    ],
)
def test_only_decided_trials_say_how_well_was_foretold(past: PastTrial, foretold: bool | None) -> None:
    assert past.is_foretold is foretold


def test_a_rule_is_counted_by_outcome_and_compared_where_it_was_decided() -> None:
    records = {record.rule: record for record in rule_records(samples.PAST)}
    assert list(records) == ["CMP014", "COM004", "DAT003"]
    workers = records["DAT003"]
    assert (workers.tried, workers.faster, workers.compared, workers.inside) == (2, 2, 2, 1)
    assert workers.error == pytest.approx((1.523 / 1.45 + 1.523 / 1.8) / 2)
    assert records["COM004"].as_json() == {
        "rule": "COM004",
        "tried": 1,
        "faster": 0,
        "no_gain": 0,
        "undecided": 1,
        "compared": 0,
        "inside": 0,
        "error": None,
    }
