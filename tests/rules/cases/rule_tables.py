"""The table of each rule, from the rule's own test. Not a test."""

from __future__ import annotations

import runpy
from pathlib import Path

from rn50_advisor.rules.registry import all_rules
from rule_files import own_test
from rule_table import Table

ROOT = Path(__file__).resolve().parents[3]
TABLES: dict[str, Table] = {rule.id: runpy.run_path(str(ROOT / own_test(rule)))["TABLE"] for rule in all_rules()}
