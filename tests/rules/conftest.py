"""Asserts of what the tests share say what they compared, as those of the tests do."""

from __future__ import annotations

import pytest

pytest.register_assert_rewrite("table_checks", "rule_runs")
