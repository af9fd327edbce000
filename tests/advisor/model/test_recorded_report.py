"""A report read back from its JSON."""

from __future__ import annotations

import json

import report_samples as samples
from rn50_advisor.advisor.model.recorded_report import from_json
from rn50_advisor.advisor.report import render


def test_it_reads_back_as_the_same_report() -> None:
    """But for the engine's own fields, which no document has."""
    document = json.loads(render(samples.bottleneck(), "json"))
    assert json.loads(render(from_json(document), "json")) == document
    assert from_json(document).findings[0].saving == samples.bottleneck().findings[0].saving


def test_a_report_from_before_the_forecast_can_be_read() -> None:
    document = samples.bottleneck().as_json()
    del document["worker_curve"]
    assert from_json(document).worker_curve is None
