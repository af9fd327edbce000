"""The triage for programs: the contract `rn50-advisor/triage/1`, keys always in the same order."""

from __future__ import annotations

import json

from rn50_advisor.advisor.model.documents.machine_triage import Triage


def render(triage: Triage) -> str:
    """Valid JSON in plain ASCII, so that any locale and any bytes in names survive."""
    return json.dumps(triage.as_json(), indent=2, allow_nan=False)
