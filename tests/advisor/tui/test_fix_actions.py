"""`y` copies what one types, `e` opens the line, `w` opens the page; what is missing is told and nothing breaks."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path

import pytest
from textual.app import SuspendNotSupported

import report_samples as samples
from rn50_advisor.advisor.model.findings import Fix, Where
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.app import AdvisorApp
from rn50_advisor.advisor.tui.fix_actions import to_copy
from tui_doubles import Reports, screen_text, settle, shown, until

DIFF = "--- a/train.py\n+++ b/train.py\n@@ -1 +1 @@\n-workers=0\n+workers=6\n"
OPTION = Fix(
    "num_workers=6", "DataLoader(..., num_workers=6)", Where("train.py", 111), typed=("--workers 6",), diff=DIFF
)


def with_fix(fix: Fix, folder: Path | None = None) -> Report:
    report = samples.running()
    finding = replace(report.findings[0], fixes=(fix,))
    environment = {**report.environment, "cwd": str(folder)} if folder else report.environment
    return replace(report, findings=(finding, *report.findings[1:]), environment=environment)


@pytest.mark.parametrize(
    ("fix", "text", "shown_as"),
    [
        (OPTION, "--workers 6", "--workers 6"),
        (replace(OPTION, typed=("--workers 6", "A=1\x1b[2J\n")), "--workers 6 A=1 ", "--workers 6 A=1 "),
        (replace(OPTION, typed=()), DIFF, "the diff, for `git apply` or `patch -p1`"),
        (Fix("move them", "nvidia-smi -i 2\nkill"), "nvidia-smi -i 2\nkill", "nvidia-smi -i 2"),
        (Fix("cool GPU 3"), "cool GPU 3", "cool GPU 3"),
        (Fix("x" * 80), "x" * 80, "x" * 60 + "…"),
    ],
)
def test_options_are_copied_before_a_diff_before_a_change_before_a_title(fix: Fix, text: str, shown_as: str) -> None:
    assert to_copy(fix) == (text, shown_as)


async def test_y_copies_the_verdicts_fix_and_says_what():
    async with shown(Reports(with_fix(OPTION)), (100, 30)) as (app, pilot):
        await pilot.press("y")
        await until(pilot, lambda: "DAT003: copied --workers 6" in screen_text(app))
        assert app.clipboard == "--workers 6"


async def test_where_details_are_shown_the_keys_are_about_the_selected_finding():
    async with shown(Reports(with_fix(OPTION)), (80, 24)) as (app, pilot):
        await pilot.press("2", "n", "n", "y")
        assert app.clipboard == "save every 500 steps, or in the background"
        await pilot.press("1", "y")
        assert app.clipboard == "--workers 6"


async def test_without_a_fix_there_is_nothing_to_copy_or_to_edit():
    async with shown(Reports(samples.healthy()), (100, 30)) as (app, pilot):
        await pilot.press("y", "e")
        await until(pilot, lambda: "There is no line to edit" in screen_text(app))
        assert "There is no fix to copy" in screen_text(app)
        assert app.clipboard == ""


def an_editor(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str = "") -> Path:
    """Sets an editor that notes its arguments, and lets the screen be left."""
    editor = folder / "vim"
    editor.write_text(f'#!/bin/sh\necho "$@" > "{folder}/asked"\n{script}\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    monkeypatch.setattr(AdvisorApp, "suspend", lambda app: contextlib.nullcontext())
    return folder / "asked"


async def test_e_opens_the_line_of_the_fix_in_the_jobs_folder(tmp_path, monkeypatch):
    asked = an_editor(tmp_path, monkeypatch)
    (tmp_path / "train.py").write_text("\n" * 200)
    async with shown(Reports(with_fix(OPTION, tmp_path)), (100, 30)) as (app, pilot):
        await pilot.press("e")
        assert asked.read_text() == f"+111 {tmp_path}/train.py\n"
        assert "▲ BOTTLENECK" in screen_text(app)
        await pilot.click("#banner", offset=(8 + len("--workers 6"), 2))
        assert app.return_value is None


async def test_a_click_on_the_place_opens_it_and_one_on_the_option_copies_it(tmp_path, monkeypatch):
    asked = an_editor(tmp_path, monkeypatch)
    (tmp_path / "train.py").write_text("\n" * 200)
    async with shown(Reports(with_fix(OPTION, tmp_path)), (80, 24)) as (app, pilot):
        row = screen_text(app).split("\n")[2]
        await pilot.click("#banner", offset=(row.index("--workers"), 2))
        await until(pilot, lambda: app.clipboard == "--workers 6")
        assert not asked.exists()
        await pilot.click("#banner", offset=(row.index("train.py"), 2))
        await until(pilot, asked.exists)


@pytest.mark.parametrize(
    ("editor", "file", "said"),
    [("", "train.py", "no editor is set"), ("no-such", "train.py", "no-such was not found"), ("", "", "names no line")],
)
async def test_a_missing_editor_or_line_is_told_with_the_place(editor, file, said, tmp_path, monkeypatch):
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", editor)
    (tmp_path / "train.py").write_text("x")
    fix = replace(OPTION, where=Where(file, 111) if file else None)
    async with shown(Reports(with_fix(fix, tmp_path)), (140, 45)) as (app, pilot):
        await pilot.press("e")
        await until(pilot, lambda: said in screen_text(app))
        assert not file or "train.py:111" in "".join(screen_text(app).split())
        assert app.is_running


def told(app, words):
    """In a message, which a long path may wrap anywhere on the screen."""
    return any(words in str(each.message) for each in app._notifications)


async def test_a_file_of_another_machine_and_an_editor_that_fails_are_told(tmp_path, monkeypatch):
    an_editor(tmp_path, monkeypatch, "exit 9")
    async with shown(Reports(with_fix(OPTION, tmp_path)), (140, 45)) as (app, pilot):
        await pilot.press("e")
        await until(pilot, lambda: told(app, "is not on this machine"))
        (tmp_path / "train.py").write_text("x")
        await pilot.press("e")
        await until(pilot, lambda: told(app, "exit code 9"))


async def test_a_terminal_that_cannot_be_left_is_no_reason_to_fail(tmp_path, monkeypatch):
    an_editor(tmp_path, monkeypatch)
    (tmp_path / "train.py").write_text("x")

    def refuse(app):
        raise SuspendNotSupported("no")

    monkeypatch.setattr(AdvisorApp, "suspend", refuse)
    async with shown(Reports(with_fix(OPTION, tmp_path)), (140, 45)) as (app, pilot):
        await pilot.press("e")
        await until(pilot, lambda: "cannot be left for an editor" in screen_text(app))


@pytest.mark.parametrize(("has_browser", "said"), [(True, "Opened"), (False, "No browser here")])
async def test_w_writes_the_page_and_opens_it_or_tells_where_it_is(has_browser, said, tmp_path, monkeypatch):
    browser = tmp_path / "browser"
    browser.write_text(f'#!/bin/sh\necho "$1" > "{tmp_path}/asked"\n')
    browser.chmod(0o700)
    for name in ("DISPLAY", "WAYLAND_DISPLAY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("BROWSER", str(browser) if has_browser else "")

    def save(report, form):
        path = tmp_path / f"report.{form}"
        path.write_text(report.verdict.title)
        return path

    async with shown(Reports(samples.running()), (200, 40), save=save) as (app, pilot):
        await pilot.press("w")
        await until(pilot, lambda: said in screen_text(app))
        assert (tmp_path / "report.html").read_text() == samples.running().verdict.title
        assert (tmp_path / "asked").exists() == has_browser


async def test_a_page_that_cannot_be_written_is_told():
    def save(report, form):
        raise OSError(28, "No space left on device")

    async with shown(Reports(samples.running()), (140, 30), save=save) as (app, pilot):
        await pilot.press("w")
        await until(pilot, lambda: "No space left on device" in screen_text(app))
        await settle(app, pilot)
