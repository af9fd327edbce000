"""The report for programs: the contract `rn50-advisor/report/1`, keys always in the same order."""

from __future__ import annotations

import json

from rn50_advisor.advisor.model.report import Report


def render(report: Report) -> str:
    """Valid JSON in plain ASCII, so that any locale and any bytes in file names survive."""
    return json.dumps(report.as_json(), indent=2, allow_nan=False)
