"""All rules: those of this package and those that other distributions offer under the entry point `rn50_advisor.rules`."""

from __future__ import annotations

import importlib
import pkgutil
import re
from importlib.metadata import entry_points

from rn50_advisor import rules
from rn50_advisor.rules.rule import Rule

ENTRY_POINT = "rn50_advisor.rules"
_MODULE = re.compile(r"[a-z][a-z0-9]{2}\d{3}_\w+")


def all_rules() -> tuple[Rule, ...]:
    """Ordered by id. Raises ValueError when two rules share an id: neither may win silently."""
    found = [
        importlib.import_module(module.name).RULE
        for module in pkgutil.walk_packages(rules.__path__, f"{rules.__name__}.")
        if _MODULE.fullmatch(module.name.rpartition(".")[2])
    ]
    found += [entry.load() for entry in entry_points(group=ENTRY_POINT)]
    by_id: dict[str, Rule] = {}
    for rule in found:
        if rule.id in by_id:
            raise ValueError(f"two rules are called {rule.id}: {by_id[rule.id].name!r} and {rule.name!r}")
        by_id[rule.id] = rule
    return tuple(by_id[key] for key in sorted(by_id))
