"""The generated documentation says what the rules say, and a new rule needs no other file than the guide names."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from docs.rule_pages import CHARTS, PAGES, PREDICTIONS, ROOT, our_rules, outdated, written

from rule_files import own_test

MODULE = Path("rules/loop/lop999_the_loop_hums.py")
OWN_TEST = Path("tests/rules/loop/test_lop999_the_loop_hums.py")
RULE = '''"""The loop hums.

What it does: finds loops that hum while they train.

Fires when: the gap is ≥ 5 % of the step.

Why it is slow: humming takes breath.

Evidence: time between steps as a share of the step.

Fix: teach the loop silence.

Estimate: none of that time is left.

False alarms: loops that only whistle.
"""

from __future__ import annotations

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear
from rn50_advisor.rules.rule import Threshold, Thresholds, rule


def check(a: Analysis, t: Thresholds) -> Clear:
    return Clear(RULE.id)


RULE = rule(__name__, "the loop hums", check, needs=("step.gap_s",), thresholds={"gap": Threshold(0.05, "heard from there on")})
'''
TEST = '''"""LOP999: its table."""

from __future__ import annotations

from rn50_advisor.advisor.model.findings import Clear
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_cases import lop004
from rule_runs import RULES
from rule_table import Table

TABLE = Table("LOP999", lop004, lines={}, false_alarms={"loops that only whistle": {}}, severities=())


def test_lop999_never_hears_anything() -> None:
    assert run_rule(RULES["LOP999"], TABLE.job(), Config()) == Clear("LOP999")
'''
FILES_MAX = 9  # that a new rule may touch
BY_HAND = 6  # module, its own test, labelled job, its scenario, rules/causes.py, CHANGELOG.md


def test_the_documentation_is_current() -> None:
    assert outdated(ROOT, written(our_rules())) == [], "run make docs"


def test_pages_that_differ_or_belong_to_no_rule_are_outdated(tmp_path: Path) -> None:
    shutil.copytree(ROOT / PAGES, tmp_path / PAGES)
    for file in (CHARTS, PREDICTIONS):
        shutil.copy(ROOT / file, tmp_path / file)
    (tmp_path / PAGES / "DAT003.md").write_text("by hand")
    (tmp_path / PAGES / "DAT999.md").write_text("of a rule that is gone")
    (tmp_path / PAGES / "DAT004.md").unlink()
    assert [path.stem for path in outdated(tmp_path, written(our_rules()))] == ["DAT003", "DAT004", "DAT999"]


def clone(home: Path) -> dict[str, str]:
    """A copy of what a new rule touches, and the environment in which it is the one imported."""
    for name in ("rules", "docs", "src"):
        shutil.copytree(ROOT / name, home / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests" / "rules", home / "tests" / "rules", ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("advisor", "probes", "tests/support", "pyproject.toml"):
        (home / name).symlink_to(ROOT / name)
    return {**os.environ, "PYTHONPATH": str(home / "src"), "PYTHONDONTWRITEBYTECODE": "1"}


def contents(home: Path) -> dict[Path, str]:
    paths = [*(home / "docs").rglob("*.md"), *(home / "rules").rglob("*.py")]
    return {path.relative_to(home): path.read_text(encoding="utf-8") for path in paths}


def test_a_new_rule_is_one_module_its_test_and_make_docs(tmp_path: Path) -> None:
    """It is listed, explained and documented, and the tests of what every rule must have take it in."""
    environment, before = clone(tmp_path), contents(tmp_path)
    (tmp_path / MODULE).write_text(RULE, encoding="utf-8")
    (tmp_path / OWN_TEST).write_text(TEST, encoding="utf-8")

    def python(*arguments: str) -> str:
        command = [sys.executable, "-m", *arguments]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    python("docs.rule_pages")
    after = contents(tmp_path)
    touched = {path for path, text in after.items() if before.get(path) != text}
    assert touched == {MODULE, PAGES / "LOP999.md", PAGES / "README.md"}
    assert len(touched) - 1 + BY_HAND <= FILES_MAX
    assert "| [LOP999](LOP999.md) | the loop hums | the gap is ≥ 5 % of the step |" in after[PAGES / "README.md"]
    assert "LOP999  by cost          the loop hums" in python("rn50_advisor", "rules")
    assert "Humming takes breath" in python("rn50_advisor", "explain", "lop999")
    pytest_alone = ("pytest", "-q", "--noconftest", "-p", "no:cacheprovider")
    assert "passed" in python(*pytest_alone, "-k", "LOP999", "tests/rules/test_registry.py", OWN_TEST.as_posix())


def test_the_own_test_of_a_rule_mirrors_its_module() -> None:
    rule = next(rule for rule in our_rules() if rule.id == "LOP002")
    assert own_test(rule) == Path("tests/rules/loop/test_lop002_logging_stops_the_training.py")
