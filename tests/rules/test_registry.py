"""The set of rules: one file, one id, a text to print, thresholds with reasons, and rules of other distributions."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

from rn50_advisor import rules
from rn50_advisor.advisor.model.measures import MEASURES
from rn50_advisor.rules.registry import ENTRY_POINT, all_rules
from rn50_advisor.rules.rule import Rule, sections
from rule_files import module_of_rule, own_test
from rule_tables import TABLES

ROOT = Path(__file__).resolve().parents[2]
RULES = {rule.id: rule for rule in all_rules()}
SECTIONS = ("What it does", "Fires when", "Why it (?:is slow|matters)", "Evidence", "Fix", "Estimate", "False alarms")


def test_the_rules_are_all_there_in_order() -> None:
    assert len(RULES) >= 75
    assert list(RULES) == sorted(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_is_one_file_named_after_its_id(rule: Rule) -> None:
    module, path = sys.modules[rule.check.__module__], module_of_rule(rule)
    assert re.fullmatch(rf"rules/[a-z_]+/{rule.id.lower()}_\w+\.py", path.as_posix())
    assert module.RULE is rule and rule.doc == (module.__doc__ or "").strip()


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_has_a_test_of_its_own_with_a_table(rule: Rule) -> None:
    assert (ROOT / own_test(rule)).is_file()
    assert TABLES[rule.id].rule == rule.id


def test_every_test_beside_those_of_rules_is_a_helpers() -> None:
    tests = {path.relative_to(ROOT / "tests") for path in Path(__file__).parent.glob("*/test_*.py")}
    mirrored = {test.with_name(test.name.removeprefix("test_")) for test in tests}
    assert mirrored <= {path.relative_to(ROOT) for path in (ROOT / "rules").glob("*/*.py")}
    assert tests >= {own_test(rule).relative_to("tests") for rule in RULES.values()}


def test_every_file_of_that_kind_is_registered() -> None:
    files = [path.name for folder in rules.__path__ for path in Path(folder).rglob("*.py")]
    ids = {name.split("_")[0].upper() for name in files if re.fullmatch(r"[a-z][a-z0-9]{2}\d{3}_\w+\.py", name)}
    assert ids == set(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_docstring_says_what_explain_prints(rule: Rule) -> None:
    heading, *paragraphs = rule.doc.split("\n\n")
    assert heading.endswith(".") and "\n" not in heading
    wanted = [s for s in SECTIONS if s != "Estimate" or rule.id not in ("RUN001", "RUN002")]
    found = [p.split(":", 1) for p in paragraphs if ":" in p]
    assert len(found) == len(wanted), [p[0] for p in found]
    for section, (title, text) in zip(wanted, found, strict=True):
        assert re.fullmatch(section, title) and len(text.split()) >= 3


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_the_shares_at_which_a_rule_fires_are_its_thresholds(rule: Rule) -> None:
    """`spare` = 0.15 may be written as 15 % idle or as 85 % busy, `times` = 1.1 as 10 % more."""
    known = {round(abs(share), 6) for each in rule.thresholds.values() for share in _written_as(each.value)}
    shown = re.findall(r"(\d+(?:\.\d+)?) %", dict(sections(rule.doc))["Fires when"])
    assert {round(float(share) / 100, 6) for share in shown} <= known


def _written_as(value: float) -> tuple[float, ...]:
    return value, 1 - value, value - 1


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_thresholds_are_numbers_with_a_reason(rule: Rule) -> None:
    for name, threshold in rule.thresholds.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), "it is a key of a TOML table"
        assert threshold.value > 0 and len(threshold.why.split()) >= 3


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_needs_values_that_there_are_and_leaves_what_it_explains_to_the_table(rule: Rule) -> None:
    assert set(rule.needs) <= set(MEASURES)
    assert rule.explains == ()
    assert rule.name and not rule.name.endswith(".")


def distribution(folder: Path, **modules: str) -> None:
    """An installed distribution that offers rules: its modules and its metadata, as pip would leave them."""
    info = folder / "their_rules-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: their-rules\nVersion: 1.0\n")
    lines = "".join(f"{name} = {name}:RULE\n" for name in modules)
    (info / "entry_points.txt").write_text(f"[{ENTRY_POINT}]\n{lines}")
    for name, identity in modules.items():
        source = f'"""Theirs."""\nfrom rn50_advisor.rules.rule import Rule\n\nRULE = Rule("{identity}", "their rule", lambda a, t: None)\n'
        (folder / f"{name}.py").write_text(source)


def test_rules_of_other_distributions_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, their_first_rule="ACM001", their_second_rule="ACM002")
    monkeypatch.syspath_prepend(str(tmp_path))
    found = {rule.id: rule for rule in all_rules()}
    assert set(found) == set(RULES) | {"ACM001", "ACM002"}
    assert found["ACM001"].name == "their rule" and next(iter(found)) == "ACM001"


def test_of_two_rules_with_one_id_neither_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    distribution(tmp_path, their_copied_rule="DAT003")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ValueError, match="two rules are called DAT003"):
        all_rules()
