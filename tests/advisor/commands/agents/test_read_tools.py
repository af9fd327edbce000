"""The tools about runs, rules and the machine: the same answers as the commands, as JSON and a paragraph."""

from __future__ import annotations

from pathlib import Path
from threading import Event
from typing import Any

import pytest

from rn50_advisor.advisor.commands.agents.read_tools import read_tools
from rn50_advisor.advisor.commands.agents.tool_calls import ToolAnswer, call
from rn50_advisor.advisor.commands.agents.verdict_tools import Shelf
from store_rows import MS
from written_runs import written_run


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shelf:
    monkeypatch.chdir(tmp_path)
    written_run(tmp_path / "runs" / "20250101-000000-before", steps=200)
    written_run(tmp_path / "runs" / "20250102-000000-after", steps=200, took_ns=5 * MS, started_unix_s=1.8e9)
    return Shelf(tmp_path / "runs")


def asked(shelf: Shelf, name: str, **arguments: Any) -> ToolAnswer:
    return call({tool.name: tool for tool in read_tools(shelf)}[name], arguments, Event())


def test_each_tool_says_when_to_use_it_and_none_of_them_runs_anything(tmp_path: Path) -> None:
    tools = read_tools(Shelf(tmp_path))
    assert [tool.name for tool in tools] == ["list_runs", "verdict", "finding", "explain", "compare", "doctor"]
    assert all("Use it" in tool.about and not tool.runs_jobs for tool in tools)


def test_runs_are_listed_newest_first(shelf: Shelf) -> None:
    answer = asked(shelf, "list_runs", limit=1)
    assert answer.document is not None and answer.document["schema"] == "rn50-advisor/runs/1"
    assert [row["name"] for row in answer.document["runs"]] == ["20250102-000000-after"]
    assert answer.text.startswith("2 runs, the newest 1 shown. The latest is 20250102-000000-after: not judged")


def test_an_empty_folder_says_how_to_record_a_run(tmp_path: Path) -> None:
    answer = asked(Shelf(tmp_path), "list_runs")
    assert not answer.failed and answer.document == {"schema": "rn50-advisor/runs/1", "runs": []}
    assert "rn50-advisor run" in answer.text


def test_a_rule_is_explained_with_its_thresholds(shelf: Shelf) -> None:
    answer = asked(shelf, "explain", rule="dat003")
    assert answer.document is not None and answer.document["id"] == "DAT003"
    assert "False alarms" in [section["heading"] for section in answer.document["sections"]]
    assert answer.document["thresholds"]["input_wait"]["value"] == 0.05
    assert "step.input_wait_s" in answer.document["needs"]
    assert "Why it is slow" in answer.text


def test_an_unknown_rule_gets_a_suggestion(shelf: Shelf) -> None:
    answer = asked(shelf, "explain", rule="DAT3")
    assert answer.failed and "did you mean DAT003?" in answer.text


def test_runs_are_compared_with_the_first(shelf: Shelf) -> None:
    answer = asked(shelf, "compare", runs=["before", "after"], max_regression=5)
    assert answer.document is not None and answer.document["schema"] == "rn50-advisor/compare/1"
    assert answer.document["pairs"][0]["change"] == "improved"
    assert answer.text.startswith("Improved: 20250102-000000-after against 20250101-000000-before: 2.")


def test_runs_that_cannot_be_compared_are_an_error_with_the_reason(shelf: Shelf) -> None:
    written_run(shelf.run_dir / "20250103-000000-short", steps=3)
    answer = asked(shelf, "compare", runs=["before", "short"])
    assert answer.failed and answer.text.startswith("Not comparable: ") and "let the runs last longer" in answer.text
    assert answer.document is not None and answer.document["pairs"][0]["change"] == "unknown"


def test_a_run_that_is_none_is_an_error(shelf: Shelf) -> None:
    assert asked(shelf, "compare", runs=["before", "bfore"]).failed
    assert asked(shelf, "compare", runs=["before"]).failed


def test_what_can_be_measured_here_is_listed(shelf: Shelf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rn50_advisor.advisor.commands import machine_checks

    made = [
        machine_checks.DoctorCheck("py-spy", "ok", "0.4"),
        machine_checks.DoctorCheck("cgroup", "warn", "not seen", "mount it"),
    ]
    monkeypatch.setattr(machine_checks, "run_checks", lambda python: made)
    answer = asked(shelf, "doctor")
    assert answer.text == "1 of 2 checks are good. cgroup: not seen."
    assert answer.document is not None and answer.document["checks"][1]["hint"] == "mount it"
