"""A triage as a document: read back as it was, and refused where it is none."""

from __future__ import annotations

import json
from typing import Any

import pytest

from rn50_advisor.advisor.model.documents.machine_triage import parse_triage
from rn50_advisor.advisor.model.errors import NotATriage
from triage_samples import made


def test_a_triage_is_read_back_as_it_was() -> None:
    triage = made()
    document = triage.as_json()
    assert list(document) == ["schema", "verdict", "checks", "gaps"] and document["schema"] == "rn50-advisor/triage/1"
    assert parse_triage(json.dumps(document)) == triage


def test_checks_are_found_by_name() -> None:
    found = made().get("disk.sequential_mb_per_s")
    assert found is not None and (found.value, found.state) == (20.0, "bad")
    assert made().get("disk.nothing") is None


def changed(**given: Any) -> str:
    return json.dumps({**made().as_json(), **given})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{}",
        "not json",
        "[" * 100_000,
        changed(schema="rn50-advisor/triage/2"),
        changed(verdict=None),
        changed(checks=[{"name": "x"}]),
        changed(gaps=[7]),
    ],
    ids=lambda text: text[:20],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(NotATriage, match="not "):
        parse_triage(text)
