"""A question with one key an answer; Escape is always the harmless one."""

from __future__ import annotations

import pytest
from textual.app import App
from textual.widgets import Button, Label

from rn50_advisor.advisor.tui.dialog import Choice


class Asking(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.answers: list[str | None] = []
        self.asked = Choice(
            "[bold]Stop[/]?", (("s", "stop", "stop it"), ("escape", "back", "go back")), "so far\x1b[31m"
        )

    def on_mount(self) -> None:
        self.push_screen(self.asked, self.answers.append)


@pytest.mark.parametrize(("key", "answer"), [("s", "stop"), ("escape", "back")])
async def test_a_key_is_an_answer(key: str, answer: str) -> None:
    app = Asking()
    async with app.run_test() as pilot:
        await pilot.press("x", key)
        await pilot.pause()
        assert app.answers == [answer]


async def test_a_button_is_one_too() -> None:
    app = Asking()
    async with app.run_test() as pilot:
        await pilot.click("#stop")
        await pilot.pause()
        assert app.answers == ["stop"]


def shown_buttons(app: Asking) -> list[str]:
    return [str(button.label) for button in app.asked.query(Button) if button.display]


async def test_another_question_takes_its_place_with_the_answers_it_has() -> None:
    app = Asking()
    async with app.run_test() as pilot:
        assert shown_buttons(app) == ["s  stop it", "Esc  go back"]
        app.asked.put("Really?", (("escape", "back", "go back"),), "it still runs")
        await pilot.pause()
        assert shown_buttons(app) == ["Esc  go back"]
        assert str(app.asked.query_one("#question", Label).render()) == "Really?"
        await pilot.press("s")
        assert app.answers == []


async def test_enter_by_habit_ends_no_job() -> None:
    app = Asking()
    async with app.run_test() as pilot:
        app.asked.query_one("#stop", Button).focus()
        app.asked.put("Really?", app.asked.answers)
        await pilot.press("enter")
        await pilot.pause()
        assert app.answers == ["back"]


async def test_names_in_a_question_are_only_text() -> None:
    app = Asking()
    async with app.run_test() as pilot:
        assert str(app.asked.query_one("#question", Label).render()) == "[bold]Stop[/]?"
        app.asked.say("now \x1b[2Jhere")
        await pilot.pause()
        assert "\x1b" not in str(app.asked.query_one("#note", Label).render())
