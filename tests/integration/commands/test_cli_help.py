"""Help, version, explain and rules: what a newcomer reads first, quickly and without the job's libraries."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from cli_process import TIMEOUT_S, advisor, environment
from rn50_advisor.advisor import __version__
from rn50_advisor.advisor.cli import COMMANDS
from rn50_advisor.rules.registry import all_rules

HEAVY = ("torch", "numpy", "textual", "rich", "jinja2", "psutil", "pynvml")


def imported(arguments: list[str], cwd: Path) -> set[str]:
    """The packages that a fresh process has loaded once the command is done."""
    program = (
        "import sys\nfrom rn50_advisor.advisor.cli import main\n"
        f"try:\n    main({arguments!r})\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        "print('\\nLOADED', *sorted({name.partition('.')[0] for name in sys.modules}))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=cwd, env=environment(), capture_output=True, timeout=TIMEOUT_S, check=True)
    return set(done.stdout.decode().rpartition("LOADED")[2].split())


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["report", "--help"], ["watch", "--help"]]
)
def test_help_is_light(arguments: list[str], tmp_path: Path) -> None:
    assert not imported(arguments, tmp_path) & set(HEAVY)


@pytest.mark.parametrize("arguments", [["explain", "DAT003"], ["rules"], ["rules", "--json"]])
def test_rules_are_explained_without_torch_or_a_screen(arguments: list[str], tmp_path: Path) -> None:
    assert not imported(arguments, tmp_path) & {"torch", "textual", "jinja2", "pynvml"}


def test_every_command_is_listed_and_has_help_of_its_own_with_an_example(tmp_path: Path) -> None:
    listed = advisor("--help", cwd=tmp_path).stdout.decode()
    for command in COMMANDS:
        assert re.search(rf"^  {command} +\w", listed, re.M)
        done = advisor(command, "--help", cwd=tmp_path)
        assert done.returncode == 0
        assert done.stdout.decode().startswith(f"Usage: rn50-advisor {command} ")
    for command in ("run", "watch", "report", "compare", "explain", "doctor", "bundle"):
        assert f"rn50-advisor {command}" in advisor(command, "--help", cwd=tmp_path).stdout.decode().partition("\n")[2]


def test_the_version_is_the_packages(tmp_path: Path) -> None:
    assert advisor("--version", cwd=tmp_path).stdout.decode() == f"rn50-advisor {__version__}\n"


def test_all_rules_are_listed_for_people_and_programs(tmp_path: Path) -> None:
    every = all_rules()
    listed = json.loads(advisor("rules", "--json", cwd=tmp_path).stdout)
    assert [(row["id"], row["name"], row["needs"]) for row in listed] == [
        (r.id, r.name, sorted(r.needs)) for r in every
    ]
    shown = advisor("rules", cwd=tmp_path).stdout.decode()
    assert re.findall(r"^([A-Z][A-Z0-9]{2}\d{3}) ", shown, re.M) == [rule.id for rule in every]


def test_a_rule_is_explained_in_its_own_words_whatever_the_case(tmp_path: Path) -> None:
    rule = next(each for each in all_rules() if each.id == "DAT003")
    shown = advisor("explain", "dat003", cwd=tmp_path).stdout.decode()
    said = [word.casefold() for word in re.findall(r"\w+", rule.doc.partition("\n")[2])]
    words = [word.casefold() for word in re.findall(r"\w+", shown)]
    assert set(said) <= set(words)
    assert "\nWhy it is slow\n" in shown and "\nThresholds\n" in shown
    for name, threshold in rule.thresholds.items():
        assert f"{name} = {threshold.value:g}" in shown


@pytest.mark.parametrize("rule", all_rules(), ids=lambda rule: rule.id)
def test_every_rule_can_be_explained_within_a_hundred_columns(rule: object, tmp_path: Path) -> None:
    from rn50_advisor.advisor.commands.explain import explanation
    from rn50_advisor.advisor.report.styled_lines import plain

    shown = plain(explanation(rule))  # type: ignore[arg-type]
    assert shown.count("\n") > 5
    assert max(map(len, shown.split("\n"))) <= 100


def test_a_reader_that_goes_away_is_no_error_of_ours(tmp_path: Path) -> None:
    command = f"'{sys.executable}' -m rn50_advisor.advisor.cli rules | true; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert done.returncode in (0, 141)
    assert done.stderr == b""
