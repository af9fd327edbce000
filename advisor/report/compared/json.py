"""The comparison for programs: the contract `rn50-advisor/compare/1`, keys always in the same order."""

from __future__ import annotations

import json

from rn50_advisor.advisor.model.documents.comparison import Comparison


def render(comparison: Comparison) -> str:
    """Valid JSON in plain ASCII, so that any locale and any bytes in names survive."""
    return json.dumps(comparison.as_json(), indent=2, allow_nan=False)
