"""Saving the report of this moment: asks for the format, writes in a worker thread, says where or why not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.app import App

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.dialog import Choice
from rn50_advisor.advisor.tui.polling import words
from rn50_advisor.advisor.tui.styles.drawing import unmarked

SaveReport = Callable[[Report, str], "Path | str"]  # report and format (html, md, json) to where it was written
_FORMATS = (("h", "html", "HTML"), ("m", "md", "Markdown"), ("j", "json", "JSON"))


def ask_and_save(app: App[Any], save: SaveReport, report: Report) -> None:
    def write(form: str) -> None:
        try:
            said, failed = f"Saved {save(report, form)}", False
        except Exception as error:  # noqa: BLE001 - a full disk is no reason to lose the screen
            said, failed = f"Not saved: {words(error)}", True
        app.call_later(tell, said, failed)

    def tell(said: str, failed: bool) -> None:
        app.notify(unmarked(said), severity="error" if failed else "information", timeout=8)

    def chosen(form: str | None) -> None:
        if form:
            app.run_worker(lambda: write(form), thread=True, exit_on_error=False)

    app.push_screen(Choice("Save a report of this moment as", _FORMATS), chosen)
