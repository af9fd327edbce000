"""Rows of facts that a report shows."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.wording.fact_rows import rows


@pytest.mark.parametrize("facts", [{}, {"storage": None}, {"storage": [1]}, {"0": {}}])
def test_facts_of_another_shape_are_passed_over(facts: dict[str, Any]) -> None:
    assert rows(facts, "storage") == []
