"""The job's output beside the verdict: what its caption says, how it is searched, and its newest line."""

from __future__ import annotations

from textual.app import App, ComposeResult
from textual.widgets import Input

from rn50_advisor.advisor.run.launch.output_lines import NewOutput
from rn50_advisor.advisor.tui.panels.output_pane import LastLine, OutputPane
from tui_doubles import Lines, until


class Shown(App[None]):
    def __init__(self, source: Lines) -> None:
        super().__init__()
        self.output = source
        self.grew: list[str] = []

    def compose(self) -> ComposeResult:
        yield OutputPane(self.output, id="output")
        yield LastLine(id="last")

    def on_output_pane_grew(self, event: OutputPane.Grew) -> None:
        self.grew.append(event.last)


class Unreadable(Lines):
    def lines_since(self, n: int) -> NewOutput:
        raise PermissionError("not [bold]yours[/]")


async def test_the_caption_counts_lines_and_shows_the_newest() -> None:
    app = Shown(Lines("one", "two"))
    async with app.run_test(size=(60, 20)) as pilot:
        pane = app.query_one(OutputPane)
        await until(pilot, lambda: app.grew == ["two"])
        assert pane.border_title == "Output · 2 lines · following"
        app.output.lines[-1] = "two of three"
        await until(pilot, lambda: app.grew == ["two", "two of three"])


async def test_a_search_without_a_match_says_so_and_leaving_it_hides_the_field() -> None:
    app = Shown(Lines("epoch 1", "epoch 2", "done"))
    async with app.run_test(size=(60, 20)) as pilot:
        pane = app.query_one(OutputPane)
        await until(pilot, lambda: bool(app.grew))
        pane.action_search()
        await pilot.press(*"[x]", "enter")
        assert pane.border_title == r"Output · not found: \[x]"
        needle = app.query_one(Input)
        needle.value = "epoch"
        await pilot.press("enter")
        await pilot.pause()
        assert "not found" not in str(pane.border_title) and not pane.log_view.follow
        pane.action_leave_search()
        assert not needle.display and pane.log_view.needle == ""
        pane.action_follow()
        assert pane.log_view.follow


async def test_what_cannot_be_read_is_in_the_title() -> None:
    app = Shown(Unreadable())
    async with app.run_test(size=(60, 20)) as pilot:
        pane = app.query_one(OutputPane)
        await until(pilot, lambda: "cannot be read" in str(pane.border_title))
        assert r"PermissionError: not \[bold]yours" in str(pane.border_title)


async def test_the_newest_line_is_one_without_colours_that_fits() -> None:
    app = Shown(Lines())
    async with app.run_test(size=(20, 20)) as pilot:
        last = app.query_one(LastLine)
        last.put("\x1b[32mepoch 1\x1b[0m " + "x" * 50)
        await pilot.pause()
        text = str(last.render())
        assert text.startswith("▕ epoch 1 xxx") and text.endswith("…") and "\x1b" not in text and len(text) == 20
