"""The command `runs`: a list of runs by what is stored of them, their removal, and their place."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

import report_samples as samples
from rn50_advisor.advisor.commands.runs import listing, runs
from rn50_advisor.advisor.model.errors import AdvisorError, NotARun, UsageError
from rn50_advisor.advisor.report.styled_lines import plain
from rn50_advisor.advisor.store.run_folders import list_runs
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_rows import RunRow
from rn50_advisor.advisor.store.run_summary import SUMMARY_NAME, read_summary, summary_of, write_summary
from rn50_advisor.advisor.store.run_writer import RunWriter
from store_rows import T0_NS
from written_runs import written_run

SLOW, FAST = "20250101-000000-slow", "20250101-000500-fast"


@pytest.fixture(autouse=True)
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs: one that was judged at its end, one that was not."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RN50_ADVISOR_RUN_DIR", raising=False)
    ended = {"ended_ns": T0_NS + 2 * 10**9}
    slow = written_run(tmp_path / "runs" / SLOW, **ended)
    written_run(tmp_path / "runs" / FAST, **ended)
    write_summary(slow, replace(summary_of(samples.bottleneck(), read_recording(slow)), likely=1.4, speedup=(1.2, 1.6)))
    return tmp_path / "runs"


def done(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(runs, arguments, input=answer)


def test_the_list_shows_what_is_stored_newest_first(base: Path) -> None:
    shown = done()
    assert shown.exit_code == 0
    head, fast, slow, empty, hint = shown.stdout.splitlines()
    assert head.split() == ["name", "when", "verdict", "likely", "gain", "samples/s", "duration", "size"]
    assert fast.startswith(FAST) and "not judged" in fast
    assert slow.startswith(SLOW) and f"▲ {samples.bottleneck().verdict.rule}" in slow
    assert "1.4×" in slow and samples.bottleneck().verdict.title in slow and "d ago" in slow
    assert not empty and hint.startswith("1 run without a stored verdict")
    assert done("-n", "1").stdout.count("2025") == 1


def test_programs_get_the_same_as_json(base: Path) -> None:
    document = json.loads(done("--json").stdout)
    assert document["schema"] == "rn50-advisor/runs/1"
    fast, slow = document["runs"]
    assert (fast["name"], fast["state"], fast["duration_s"], fast["rule"]) == (FAST, "not judged", 2.0, None)
    assert (slow["state"], slow["likely"], slow["speedup"]) == ("bottleneck", 1.4, [1.2, 1.6])
    assert slow["started"] == "2023-11-14T22:13:20+00:00"
    assert slow["size_bytes"] == sum(path.stat().st_size for path in (base / SLOW).iterdir())


def test_listing_analyses_nothing_and_judging_keeps_what_it_finds(base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Path] = []

    def read(folder: Path) -> Any:
        judged.append(folder)
        return read_recording(folder)

    monkeypatch.setattr("rn50_advisor.advisor.merge.job_reading.read_job", read)
    done()
    assert judged == []
    assert "without a stored verdict" not in done("--judge").stdout
    assert [folder.name for folder in judged] == [FAST]
    assert read_summary(base / FAST) is not None
    done("--judge")
    assert len(judged) == 1


def test_a_run_that_cannot_be_read_has_its_line_and_stays_unjudged(base: Path) -> None:
    (base / FAST / "run.sqlite").write_bytes(b"x" * 200)
    shown = done("--judge")
    assert shown.exit_code == 0 and "✗ unreadable" in shown.stdout
    assert not (base / FAST / SUMMARY_NAME).exists()


def test_no_runs_are_no_error(tmp_path: Path) -> None:
    shown = done("--run-dir", "none")
    assert shown.exit_code == 0 and shown.stdout == "no runs in none; record one: rn50-advisor run -- COMMAND\n"
    assert json.loads(done("--run-dir", "none", "--json").stdout)["runs"] == []


def test_a_hostile_title_cannot_forge_a_line(base: Path) -> None:
    summary = read_summary(base / SLOW)
    assert summary is not None
    write_summary(base / SLOW, replace(summary, title="\x1b[31mred\n20250101-forged"))
    shown = done().stdout
    assert "\x1b" not in shown and "\n20250101-forged" not in shown


def test_the_path_of_a_run_is_printed_for_other_programs(base: Path) -> None:
    for argument in ("latest", "fast", "fa", str(base / FAST), str(base / FAST / "run.sqlite")):
        assert done("path", argument).stdout == f"{base / FAST}\n"
    assert done("path").stdout == f"{base / FAST}\n"
    assert isinstance(done("path", "faster").exception, NotARun)


@pytest.mark.parametrize("argument", ["slow", SLOW, f"runs/{SLOW}", f"runs/{SLOW}/"])
def test_a_run_is_removed_after_a_yes(base: Path, argument: str) -> None:
    shown = done("rm", argument, answer="y\n")
    assert shown.exit_code == 0 and shown.stdout.startswith(f"removed runs/{SLOW} (")
    assert "Remove 1 run (" in shown.stderr
    assert [run.name for run in list_runs(base)] == [FAST] and not (base / SLOW).exists()


def test_several_go_at_once_each_but_once_and_without_a_question(base: Path) -> None:
    shown = done("rm", "--yes", "slow", "fast", SLOW, "latest")
    assert shown.exit_code == 0 and shown.stderr == ""
    assert list(base.iterdir()) == []


@pytest.mark.parametrize(("answer", "error"), [("n\n", AdvisorError), ("\n", AdvisorError), ("", UsageError)])
def test_without_a_yes_nothing_goes(base: Path, answer: str, error: type[AdvisorError]) -> None:
    refused = done("rm", "slow", answer=answer).exception
    assert type(refused) is error and refused.message.startswith("nothing was removed")
    assert len(list_runs(base)) == 2


def test_one_that_cannot_go_keeps_all(base: Path) -> None:
    writer = RunWriter.create(base / "now", meta={})
    for other, error in (
        ("now", AdvisorError),
        ("nowhere", NotARun),
        ("slo", UsageError),
        (f"runs/{FAST}/run.sqlite", NotARun),
    ):
        assert type(done("rm", "--yes", "slow", other).exception) is error, other
        assert len(list_runs(base)) == 3
    writer.close()


def test_what_is_the_users_stays_and_it_is_said(base: Path) -> None:
    (base / SLOW / "notes.txt").write_text("mine")
    shown = done("rm", "--yes", "slow")
    assert shown.exit_code == 0
    assert shown.stderr == "  kept there, as the recording did not make it: notes.txt\n"
    assert [path.name for path in (base / SLOW).iterdir()] == ["notes.txt"]


@pytest.mark.parametrize(
    ("argument", "hint"),
    [
        ("pth", "did you mean path?"),
        ("runs", "rn50-advisor runs --run-dir runs"),
        ("show", "there are list, rm, path;"),
    ],
)
def test_an_unknown_subcommand_gets_a_suggestion(argument: str, hint: str) -> None:
    error = done(argument).exception
    assert isinstance(error, UsageError) and hint in error.hint


def test_the_folder_of_runs_may_stand_before_or_after_the_subcommand(base: Path) -> None:
    base.rename(base.with_name("others"))
    assert (
        done("--run-dir", "others", "path", "slow").stdout == done("path", "--run-dir", "others", "slow").stdout != ""
    )
    assert done("--run-dir", "others", "rm", "--yes", "slow").exit_code == 0
    assert done("--run-dir", "none", "rm", "--yes", "--run-dir", "others", "fast").exit_code == 0
    assert list(base.with_name("others").iterdir()) == []


@pytest.mark.parametrize(
    ("age_s", "when"), [(-50, "just now"), (59, "just now"), (60, "1 min ago"), (7300, "2 h ago"), (200_000, "2 d ago")]
)
def test_when_is_how_long_ago(age_s: float, when: str) -> None:
    row = RunRow("x", "x", "healthy", started_unix_s=1e9)
    assert when in plain(listing([row], now_unix_s=1e9 + age_s))


def test_lines_fit_a_terminal_and_hide_no_name() -> None:
    row = RunRow(
        "20250101-000000-x", "x", "bottleneck", "DAT003", "A long title " * 9, 2.0, (1.5, 2.5), 1234.5, 1e9, 70.0, 5
    )
    wide, narrow = (plain(listing([row], now_unix_s=1e9, width=width)).splitlines() for width in (0, 110))
    assert len(wide[1]) > 110 and max(map(len, narrow)) <= 110 and narrow[1].endswith("…")
    assert narrow[1].startswith("20250101-000000-x")
