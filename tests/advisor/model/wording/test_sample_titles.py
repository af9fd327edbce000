"""Titles of what is sampled: one for each metric."""

from __future__ import annotations

from rn50_advisor.advisor.model.metrics import SAMPLES
from rn50_advisor.advisor.model.wording.sample_titles import SAMPLE_TITLES


def test_every_metric_has_a_title() -> None:
    assert set(SAMPLE_TITLES) == set(SAMPLES)
