"""The set of rules: one file, one id, a text to print, thresholds with reasons, and rules of other distributions."""

from __future__ import annotations

import dataclasses
import re
import sys
from pathlib import Path

import pytest

from rn50_advisor import rules
from rn50_advisor.advisor.model.analysis import VALUES
from rn50_advisor.rules.registry import ENTRY_POINT, all_rules
from rn50_advisor.rules.rule import Rule, confidence, severity
from rn50_advisor.rules.rule import rule as make_rule

RULES = {rule.id: rule for rule in all_rules()}
OF_THIS_ISSUE = (
    *("DAT001", "DAT002", "DAT003", "DAT004", "DAT008", "CMP007", "COM001", "COM002", "CPU001", "CPU002", "CPU003"),
    *("LOP001", "LOP002", "LOP003", "LOP004", "RUN001", "RUN002"),
)
SECTIONS = ("What it does", "Why it (?:is slow|matters)", "Evidence", "Fix", "Estimate", "False alarms")


def test_the_rules_are_all_there_in_order() -> None:
    assert set(RULES) >= set(OF_THIS_ISSUE)
    assert list(RULES) == sorted(RULES)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_is_one_file_named_after_its_id(rule: Rule) -> None:
    module = sys.modules[rule.check.__module__]
    name = Path(module.__file__ or "").name
    assert re.fullmatch(rf"{rule.id.lower()}_\w+\.py", name)
    assert module.RULE is rule and rule.doc == (module.__doc__ or "").strip()


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
def test_thresholds_are_numbers_with_a_reason(rule: Rule) -> None:
    for name, threshold in rule.thresholds.items():
        assert re.fullmatch(r"[a-z][a-z0-9_]*", name), "it is a key of a TOML table"
        assert threshold.value > 0 and len(threshold.why.split()) >= 3


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_a_rule_needs_values_that_there_are_and_explains_rules_that_there_are(rule: Rule) -> None:
    assert set(rule.needs) <= set(VALUES)
    assert set(rule.explains) <= set(RULES) - {rule.id}
    assert rule.name and not rule.name.endswith(".")


def test_the_id_and_the_text_come_from_the_module() -> None:
    made = make_rule(
        "rn50_advisor.rules.data_loading.dat003_loading_in_training_process", "a name", RULES["DAT003"].check
    )
    assert made.id == "DAT003" and made.doc == RULES["DAT003"].doc


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        *(
            (5.0, "critical"),
            (0.30, "critical"),
            (0.2999, "high"),
            (0.15, "high"),
            (0.1499, "medium"),
            (0.05, "medium"),
        ),
        *((0.0499, "low"), (0.02, "low"), (0.0199, None), (0.0, None), (-1.0, None)),
    ],
)
def test_severity_lines_are_those_of_the_catalogue(share: float, expected: str | None) -> None:
    assert severity(share) == expected


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


@pytest.mark.parametrize(("steps", "expected"), [(5, 0.6), (20, 0.8), (100, 0.95), (1000, 0.95), (0, 0.55)])
def test_confidence_grows_with_the_steps_seen(steps: int, expected: float) -> None:
    from rn50_advisor.advisor.model.analysis import Analysis
    from rn50_advisor.advisor.model.recording import Meta
    from rn50_advisor.advisor.model.report import StepTime, Throughput

    meta = Meta("job", (), "/", "node", 0.0, 0, 0)
    analysis = Analysis(meta, 1, StepTime(1.0, 1.0, steps, steps), Throughput(None, None, None, 1))
    assert confidence(analysis) == pytest.approx(expected, abs=0.01)
    assert confidence(analysis, cap=0.7) <= 0.7


def test_a_rule_cannot_be_changed_by_whoever_holds_it() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        RULES["DAT003"].name = "other"  # type: ignore[misc]
