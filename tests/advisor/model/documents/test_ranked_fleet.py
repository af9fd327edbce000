"""The document of a fleet: its schema, and who is an outlier."""

from __future__ import annotations

import json
import math

from rn50_advisor.advisor.model.documents.ranked_fleet import (
    Baseline,
    Deviation,
    Fleet,
    FleetMachine,
    ResultFile,
    Unread,
)

SLOW = FleetMachine(
    "node-b",
    "H200",
    -7.5,
    True,
    "disk.sync_ms",
    (ResultFile("triage", "b.json", "fix"),),
    (Deviation("disk.sync_ms", 9.0, "ms", 2.0, -3.5, -7.5, True),),
)
SOUND = FleetMachine("node-a", "H200", -0.1, False, None, (), (Deviation("x", 1.0, "", 0.0, None, math.inf, False),))
FLEET = Fleet(
    (SLOW, SOUND),
    (Baseline("H200", "disk.sync_ms", "ms", "lower", 2.0, 2.0, 0.1, 2),),
    (Unread("c.json", "empty"),),
    ("few",),
)


def test_outliers_are_those_marked_so() -> None:
    assert FLEET.outliers == (SLOW,) and Fleet((SOUND,), ()).outliers == ()


def test_the_document_is_plain_json_with_its_schema_first() -> None:
    document = FLEET.as_json()
    assert json.loads(json.dumps(document, allow_nan=False)) == document
    assert list(document) == ["schema", "machines", "baselines", "unread", "notes"]
    assert document["schema"] == "rn50-advisor/fleet/1"
    assert list(document["machines"][0]) == [
        "name",
        "group",
        "score",
        "outlier",
        "worst",
        "results",
        "deviations",
        "differences",
        "missing",
        "flaws",
    ]
    assert document["machines"][1]["deviations"][0]["score"] is None, "infinity is no JSON"
