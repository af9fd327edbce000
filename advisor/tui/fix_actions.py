"""What one does with a fix from the screen: copies it, opens its place in an editor, opens the report's page in a browser."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.app import App, SuspendNotSupported

from rn50_advisor.advisor.model.findings import Finding, Fix
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.trials import Trial
from rn50_advisor.advisor.model.visible_text import in_lines
from rn50_advisor.advisor.tui.outside_programs import NoProgram, edit, editor_command, open_page
from rn50_advisor.advisor.tui.panels.verdict_lines import first_fix
from rn50_advisor.advisor.tui.polling import words
from rn50_advisor.advisor.tui.quit_dialog import SaveReport
from rn50_advisor.advisor.tui.styles.drawing import harmless, unmarked

_SHOWN_CHARS = 60  # of what was copied


def to_copy(fix: Fix) -> tuple[str, str]:
    """What to copy of a fix, and words for it: its options, else its diff, else the change or the title."""
    if fix.typed:
        text = harmless(" ".join(fix.typed))
        return text, text
    if fix.diff:
        return in_lines(fix.diff), "the diff, for `git apply` or `patch -p1`"
    text = in_lines(fix.change).strip() or harmless(fix.title)
    first = text.splitlines()[0] if text else ""
    return text, first if len(first) <= _SHOWN_CHARS else f"{first[:_SHOWN_CHARS].rstrip()}…"


def copy_fix(app: App[Any], finding: Finding | None) -> None:
    fix = first_fix(finding)
    if finding is None or fix is None:
        app.notify("There is no fix to copy.")
        return
    text, shown = to_copy(fix)
    app.copy_to_clipboard(text)
    app.notify(unmarked(f"{finding.rule}: copied {shown}"))


def copy_change(app: App[Any], trial: Trial | None) -> None:
    """Copies what one types or edits to keep a change that was tried: its diff, if there is one. `trial` None: none is chosen."""
    if trial is None:
        app.notify("Choose one change to copy it.")
        return
    text, shown = to_copy(Fix(trial.knob, trial.change, diff=trial.diff))
    app.copy_to_clipboard(text)
    app.notify(unmarked(f"{trial.rule}: copied {shown}"))


def edit_fix(app: App[Any], finding: Finding | None, report: Report | None) -> None:
    """Leaves the screen for the editor, and comes back to it. The job goes on meanwhile; its output is read afterwards."""
    where = next((fix.where for fix in finding.fixes if fix.where), None) if finding is not None else None
    if finding is None or report is None or where is None:
        app.notify("There is no line to edit." if finding is None else f"{finding.rule} names no line to edit.")
        return
    file = Path(str(report.environment.get("cwd") or "")) / where.file
    try:
        command = editor_command(file, where.line, os.environ)
        with app.suspend():
            edit(command)
    except (NoProgram, SuspendNotSupported) as error:
        reason = words(error) if isinstance(error, NoProgram) else "this terminal cannot be left for an editor"
        app.notify(unmarked(f"{reason}. The line is {file}:{where.line}"), severity="warning", timeout=10)


def open_report(app: App[Any], save: SaveReport, report: Report, open_it: Callable[[Path], bool] = open_page) -> None:
    """Writes the report as HTML and opens it, in a worker thread."""

    def write() -> None:
        severity = "information"
        try:
            path = Path(save(report, "html"))
            said = f"Opened {path}" if open_it(path) else f"No browser here. The report is {path}"
        except Exception as error:  # noqa: BLE001 - a full disk is no reason to lose the screen
            said, severity = f"Not saved: {words(error)}", "error"
        app.call_later(app.notify, unmarked(said), severity=severity, timeout=10)

    app.run_worker(write, thread=True, exit_on_error=False)
