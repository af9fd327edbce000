"""What stands behind the runs list: real runs are judged, compared and removed; a list leads to a run and back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rn50_advisor.advisor import cli
from rn50_advisor.advisor.commands import runs as command
from rn50_advisor.advisor.commands.listed import runs_screen
from rn50_advisor.advisor.commands.listed.runs_screen import actions_on, removal_of, show_runs
from rn50_advisor.advisor.model.errors import NotARun, UsageError
from rn50_advisor.advisor.store.run_summary import read_summary
from rn50_advisor.advisor.tui.report_source import ReplayedRun
from rn50_advisor.advisor.tui.runs.opened_run import LEFT, OpenedRun
from rn50_advisor.advisor.tui.runs.runs_app import RunsApp
from store_rows import T0_NS
from written_runs import written_run


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("RN50_ADVISOR_RUN_DIR", raising=False)
    for n, name in enumerate(("20250101-000000-slow", "20250102-000000-fast")):
        took_ns = (20 - 10 * n) * 10**6
        ended_ns = T0_NS + 60 * took_ns
        written_run(tmp_path / name, steps=60, took_ns=took_ns, started_unix_s=1.7e9 + n, ended_ns=ended_ns)
    return tmp_path


def test_the_newest_run_comes_first_and_no_more_than_asked_for(base: Path) -> None:
    assert [run.name for run in actions_on(base).folders()] == ["20250102-000000-fast", "20250101-000000-slow"]
    assert len(actions_on(base, limit=1).folders()) == 1


def test_a_verdict_is_kept_and_the_page_written(base: Path) -> None:
    actions, run = actions_on(base), base / "20250101-000000-slow"
    actions.judge(run)
    assert read_summary(run) is not None
    page = actions.page(run)
    assert page == run / "report.html" and "<html" in page.read_text()


def test_compared_runs_are_named_and_the_second_is_set_against_the_first(base: Path) -> None:
    text = actions_on(base).compare(sorted(base.iterdir()))
    assert "20250101-000000-slow" in text and "20250102-000000-fast" in text
    assert max(map(len, text.splitlines())) <= 74


def test_the_question_names_runs_and_what_stays_and_removes_nothing_before_the_answer(base: Path) -> None:
    slow, fast = sorted(base.iterdir())
    (fast / "mine.txt").write_text("notes")
    removal = removal_of([slow, fast])
    assert removal.question.startswith("Remove 2 runs (")
    for part in ("20250101-000000-slow", "20250102-000000-fast", "mine.txt", "cannot be restored"):
        assert part in removal.note
    assert slow.is_dir() and (fast / "run.sqlite").is_file()
    assert "Removed 2 runs" in removal.remove()
    assert not slow.exists() and [file.name for file in fast.iterdir()] == ["mine.txt"]


def test_what_is_not_certainly_a_run_is_refused_and_the_others_stay(base: Path) -> None:
    other = base / "photos"
    other.mkdir()
    with pytest.raises(NotARun):
        removal_of([base / "20250101-000000-slow", other])
    assert (base / "20250101-000000-slow" / "run.sqlite").is_file()


@pytest.mark.parametrize(("answer", "times"), [("quit", 2), (LEFT, 1), ("hung up", 1)])
def test_an_opened_run_leads_back_to_the_list_unless_all_is_left(
    answer: str, times: int, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists: list[RunsApp] = []
    opened: list[OpenedRun] = []

    def run_list(app: RunsApp) -> Path | None:
        lists.append(app)
        return base / "20250101-000000-slow" if len(lists) == 1 else None

    def run_screen(app: OpenedRun) -> str:
        opened.append(app)
        return answer

    monkeypatch.setattr(RunsApp, "run", run_list)
    monkeypatch.setattr(OpenedRun, "run", run_screen)
    show_runs(base)
    assert len(lists) == times and len(opened) == 1
    assert isinstance(opened[0].source, ReplayedRun)
    assert all(each.state is lists[0].state for each in lists)


def test_a_run_that_cannot_be_opened_is_said_in_the_list(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lists: list[RunsApp] = []

    def run_list(app: RunsApp) -> Path | None:
        lists.append(app)
        return base / "none" if len(lists) == 1 else None

    monkeypatch.setattr(RunsApp, "run", run_list)
    show_runs(base)
    assert lists[1].notice.startswith("none could not be opened")


@pytest.mark.parametrize(
    ("arguments", "terminal", "on_screen"),
    [
        ([], True, True),
        (["-n", "1"], True, True),
        ([], False, False),
        (["--json"], True, False),
        (["--judge"], True, False),
        (["list"], True, False),
        (["list", "-n", "1"], True, False),
        (["-n", "1", "list"], True, False),
    ],
)
def test_runs_is_a_screen_on_a_terminal_and_else_the_printed_list(
    arguments: list[str], terminal: bool, on_screen: bool, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[tuple[Path, Any]] = []
    monkeypatch.setattr(runs_screen, "show_runs", lambda run_dir, *, config, limit: shown.append((run_dir, limit)))
    monkeypatch.setattr(command, "has_terminal", lambda: terminal)
    done = CliRunner().invoke(command.runs, ["--run-dir", str(base), *arguments])
    assert done.exit_code == 0, done.exception
    assert shown == ([(base, 1 if arguments else None)] if on_screen else [])
    assert ("20250102-000000-fast" in done.stdout) != on_screen
    assert ("20250101-000000-slow" in done.stdout) == (not on_screen and "-n" not in arguments)


@pytest.mark.parametrize("terminal", [True, False])
def test_no_command_is_the_list_on_a_terminal_and_wrong_usage_without(
    terminal: bool, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Path] = []
    monkeypatch.setattr(runs_screen, "show_runs", lambda run_dir, **_: shown.append(run_dir))
    for module in (cli, command):
        monkeypatch.setattr(module, "has_terminal", lambda: terminal)
    monkeypatch.chdir(base)
    if terminal:
        with pytest.raises(SystemExit) as left:
            cli.main([])
        assert left.value.code == 0 and shown == [Path("runs")]
    else:
        with pytest.raises(SystemExit) as left:
            cli.main([])
        assert left.value.code == UsageError.exit_code and shown == []
