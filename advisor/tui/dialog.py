"""A question with one key an answer; Escape is always the harmless one."""

from __future__ import annotations

from typing import ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Button, Label

from rn50_advisor.advisor.tui.styles.drawing import harmless

_KEY_NAMES = {"escape": "Esc"}


class Choice(ModalScreen[str]):
    """Returns the chosen answer's id, or an empty string."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "dismiss('')", "cancel"),
        Binding("ctrl+c", "app.interrupt_job", "interrupt the job", show=False),
        Binding("left", "app.focus_previous", "previous", show=False),
        Binding("right", "app.focus_next", "next", show=False),
    ]

    def __init__(self, question: str, answers: tuple[tuple[str, str, str], ...], note: str = "") -> None:
        """`answers`: key, id, label."""
        super().__init__()
        self.question = question
        self.answers = answers
        self.note = note

    def compose(self) -> ComposeResult:
        with Vertical(id="dialog"):
            yield Label(self.question, id="question", markup=False)
            yield Label(self.note, id="note", markup=False)
            with Horizontal(id="answers"):
                for key, answer, label in self.answers:
                    yield Button(f"{_KEY_NAMES.get(key, key)}  {label}", id=answer)

    def put(self, question: str, answers: tuple[tuple[str, str, str], ...], note: str = "") -> None:
        """Another question in the same place: which of its answers exist is shown by the buttons."""
        self.question, self.answers = question, answers
        self.query_one("#question", Label).update(question)
        self.say(note)
        offered = {answer for _, answer, _ in answers}
        for button in self.query(Button):
            button.display = button.id in offered
        shown = [button for button in self.query(Button) if button.display]
        if shown:
            shown[-1].focus()  # the harmless one: Enter by habit must not end a job

    def say(self, note: str) -> None:
        self.note = note
        self.query_one("#note", Label).update(harmless(note))

    def on_key(self, event: events.Key) -> None:
        for key, answer, _ in self.answers:
            if event.key == key:
                event.stop()
                self.answered(answer)

    @on(Button.Pressed)
    def _pressed(self, event: Button.Pressed) -> None:
        event.stop()
        self.answered(event.button.id or "")

    def answered(self, answer: str) -> None:
        self.dismiss(answer)
