"""The files of a rule, by its name: its module and its own test."""

from __future__ import annotations

import sys
from pathlib import Path

from rn50_advisor.rules.rule import Rule


def module_of_rule(rule: Rule) -> Path:
    """`rules/<family>/<id>_<name>.py`, within the clone."""
    return Path(*sys.modules[rule.check.__module__].__name__.split(".")[1:]).with_suffix(".py")


def own_test(rule: Rule) -> Path:
    """`tests/rules/<family>/test_<id>_<name>.py`, within the clone."""
    module = module_of_rule(rule)
    return Path("tests") / module.with_name(f"test_{module.name}")
