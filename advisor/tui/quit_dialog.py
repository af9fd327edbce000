"""Leaving while a job runs: stop it (interrupt, then terminate, then kill), detach from it, or stay."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from textual.app import App
from textual.widgets import Button

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.wording.quantities import clock
from rn50_advisor.advisor.tui.dialog import Choice
from rn50_advisor.advisor.tui.job_control import JobControl
from rn50_advisor.advisor.tui.polling import words
from rn50_advisor.advisor.tui.styles.drawing import unmarked

_DETACH = ("d", "detach", "Leave it running")
_CANCEL = ("escape", "cancel", "Back")
_STAGES = {
    "ask": (("s", "interrupt", "Stop the job"), _DETACH, _CANCEL),
    "interrupted": (("t", "terminate", "Terminate"), _DETACH, _CANCEL),
    "terminated": (("k", "kill", "Kill"), _DETACH, _CANCEL),
    "killed": (_DETACH, _CANCEL),
}
_WORDS = {
    "ask": "The job is still running.",
    "interrupted": "Interrupted (SIGINT), as Ctrl-C would. Waiting for the job to end …",
    "terminated": "Terminated (SIGTERM). Waiting for the job to end …",
    "killed": "Killed (SIGKILL). Waiting for the job to end …",
}
_NEXT = {"interrupt": "interrupted", "terminate": "terminated", "kill": "killed"}


class QuitDialog(Choice):
    """Answers `stopped`, `detached`, `ended` (it ended by itself meanwhile) or nothing; never decides by itself to be harsher."""

    def __init__(self, job: JobControl) -> None:
        harsher = (_STAGES["ask"][0], _STAGES["interrupted"][0], _STAGES["terminated"][0])
        super().__init__(_WORDS["ask"], (*harsher, _DETACH, _CANCEL))
        self.job = job
        self.stage = "ask"
        self._since = time.monotonic()

    def on_mount(self) -> None:
        self._enter("ask")
        self.set_interval(0.2, self.check)

    def check(self) -> None:
        """Ends the dialogue as soon as the job has ended."""
        if not self.job.running():
            self.dismiss("ended" if self.stage == "ask" else "stopped")
        elif self.stage != "ask":
            since = f"{clock(time.monotonic() - self._since)} since then; the report is written in any case"
            self.say(self.job.trouble or since)

    def answered(self, answer: str) -> None:
        if answer in _NEXT:
            getattr(self.job, answer)()
            self._enter(_NEXT[answer])
        else:
            self.dismiss("detached" if answer == "detach" else "")

    def _enter(self, stage: str) -> None:
        self.stage = stage
        self._since = time.monotonic()
        left = (
            "Left running, it stays unrecorded: its supervisor is gone."
            if self.job.end_unknown()
            else "Left running, it keeps being recorded; `rn50-advisor watch` shows it again."
        )
        self.put(_WORDS[stage], _STAGES[stage], left if stage == "ask" else "")
        for button in self.query(Button):
            button.variant = "error" if button.id in ("terminate", "kill") else "default"


SaveReport = Callable[[Report, str], "Path | str"]  # report and format (html, md, json) to where it was written
_FORMATS = (("h", "html", "HTML"), ("m", "md", "Markdown"), ("j", "json", "JSON"))


# Saving the report of this moment: asks for the format, writes in a worker thread, says where or why not.
def ask_and_save(app: App[Any], save: SaveReport, report: Report) -> None:
    def write(form: str) -> None:
        try:
            message, failed = f"Saved {save(report, form)}", False
        except Exception as error:  # noqa: BLE001 - a full disk is no reason to lose the screen
            message, failed = f"Not saved: {words(error)}", True
        app.call_later(notify, message, failed)

    def notify(message: str, failed: bool) -> None:
        app.notify(unmarked(message), severity="error" if failed else "information", timeout=8)

    def chosen(form: str | None) -> None:
        if form:
            app.run_worker(lambda: write(form), thread=True, exit_on_error=False)

    app.push_screen(Choice("Save a report of this moment as", _FORMATS), chosen)
