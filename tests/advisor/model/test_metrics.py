"""The catalogue of raw samples: names, units and scopes agree with each other."""

from __future__ import annotations

import re

import pytest

from rn50_advisor.advisor.model.metrics import SAMPLES, Metric

SCOPES = {"host", "job", "cpu", "disk", "mount", "net", "gpu", "mig", "pid"}


@pytest.mark.parametrize("metric", SAMPLES.values(), ids=SAMPLES)
def test_a_metric_has_a_plain_name_a_known_scope_and_a_meaning(metric: Metric) -> None:
    assert SAMPLES[metric.name] is metric
    assert re.fullmatch(r"[a-z]+\.[a-z0-9_]+", metric.name)
    assert set(metric.scope.split("|")) <= SCOPES and metric.kind in ("level", "counter") and metric.what


@pytest.mark.parametrize("metric", SAMPLES.values(), ids=SAMPLES)
def test_a_unit_in_the_name_is_the_unit(metric: Metric) -> None:
    units = {"_bytes": "bytes", "_pct": "%", "_mhz": "MHz", "_w": "W", "_c": "°C", "_j": "J"}
    for end, unit in units.items():
        if metric.name.endswith(end):
            assert metric.unit == unit, metric.name
