"""Each title belongs to a metric, and each measure that rules show as evidence has one."""

import ast
import importlib
import pkgutil
from pathlib import Path

from rn50_advisor import rules
from rn50_advisor.advisor.model import measures
from rn50_advisor.advisor.model.measures import MEASURES
from rn50_advisor.advisor.model.measures.measure import Measure
from rn50_advisor.advisor.model.wording.metric_titles import METRIC_TITLES

NOT_MEASURES = {"gap", "gpu.xid"}
SAID_WELL_BY_THEIR_NAMES = {"loader.workers"}


def declared() -> dict[str, Measure]:
    modules = [
        importlib.import_module(f"{measures.__name__}.{each.name}") for each in pkgutil.iter_modules(measures.__path__)
    ]
    return {name: value for module in modules for name, value in vars(module).items() if isinstance(value, Measure)}


def shown_by_rules() -> set[str]:
    """The first arguments of `Evidence.of` that are names of measures."""
    found = set()
    for path in Path(rules.__path__[0]).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Call)
                and ast.unparse(node.func) == "Evidence.of"
                and isinstance(node.args[0], ast.Name)
            ):
                found.add(node.args[0].id)
    return found


def test_every_title_is_of_a_metric() -> None:
    assert set(METRIC_TITLES) <= set(MEASURES) | NOT_MEASURES


def test_evidence_of_rules_has_titles() -> None:
    names = declared()
    shown = {names[each].name for each in shown_by_rules() if each in names}
    assert len(shown) > 100 and shown - set(METRIC_TITLES) <= SAID_WELL_BY_THEIR_NAMES
