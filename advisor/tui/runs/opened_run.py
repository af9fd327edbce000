"""A run's screen over the runs list."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from textual.binding import Binding, BindingType

from rn50_advisor.advisor.tui import app as run_screen

STYLE_SHEET = Path(run_screen.__file__).with_name("app.tcss")
LEFT = "left"  # the answer of an opened run that ends the list, too


class OpenedRun(run_screen.AdvisorApp):
    """q and Esc go back to the list, Ctrl-C leaves both (the answer LEFT)."""

    CSS_PATH = str(STYLE_SHEET)
    BINDINGS: ClassVar[list[BindingType]] = [Binding("q,ctrl+q", "quit", "Back", key_display="q")]

    def action_clear_filter(self) -> None:
        if self.needle:
            super().action_clear_filter()
        else:
            self.exit("quit")

    def action_interrupt_job(self) -> None:
        self.exit(LEFT)
