"""The fleet for programs: the contract `rn50-advisor/fleet/1`, keys always in the same order."""

from __future__ import annotations

import json

from rn50_advisor.advisor.model.documents.ranked_fleet import Fleet


def render(fleet: Fleet) -> str:
    """Valid JSON in plain ASCII, so that any locale and any bytes in names survive."""
    return json.dumps(fleet.as_json(), indent=2, allow_nan=False)
