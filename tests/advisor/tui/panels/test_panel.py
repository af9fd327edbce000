"""A part of the screen that draws one report."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from textual.app import App, ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.style import Style
from textual.visual import Visual

import report_samples as samples
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.panels.panel import HELD_REPORTS, Line, Panel
from rn50_advisor.advisor.tui.panels.throughput_panel import ThroughputChart
from tui_doubles import Reports, screen_lines, screen_text, shown


async def test_a_part_that_cannot_draw_leaves_the_others_alone(monkeypatch):
    def broken(self, report, width):
        raise ValueError("no such phase")

    monkeypatch.setattr(ThroughputChart, "draw", broken)
    async with shown(Reports(samples.running()), (100, 30)) as (app, _):
        text = screen_text(app)
        assert "✖ cannot be shown: ValueError: no such phase" in text
        assert "▲ BOTTLENECK" in text
        assert "◀ bottleneck" in text


class Said(Panel):
    TITLE = "Said"

    def draw(self, report: Report, width: int) -> list[Content]:
        if report.job.name == "broken":
            raise ValueError("no [bold]such[/] phase")
        return [Content(report.job.name), Content("x" * width)]


class OnePanel(App[None]):
    def compose(self) -> ComposeResult:
        yield Said(id="said")


def named(name: str) -> Report:
    return replace(samples.running(), job=replace(samples.running().job, name=name))


class TallPanel(OnePanel):
    CSS = "#said { height: 8; }"


async def test_a_panel_higher_than_its_lines_is_drawn_anew() -> None:
    app = TallPanel()
    async with app.run_test(size=(40, 10)) as pilot:
        panel = app.query_one(Said)
        panel.show(named("one"))
        await pilot.pause()
        panel.show(named("two"))
        await pilot.pause()
        assert panel.content_size.height > 2 and screen_lines(app)[0].startswith("two")


async def test_a_panel_shows_the_newest_report_and_nothing_of_a_broken_one_ends_it() -> None:
    app = OnePanel()
    async with app.run_test(size=(40, 10)) as pilot:
        panel = app.query_one(Said)
        assert panel.render().plain == "… reading"
        panel.show(named("one"))
        await pilot.pause()
        width = panel.content_size.width
        assert panel.render().plain == "one\n" + "x" * width
        assert panel.get_content_height(app.size, app.size, width) == 2
        panel.show(named("broken"))
        assert panel.render().plain.startswith("✖ cannot be shown: ValueError: no [bold")
        panel.show(named("two"))
        assert panel.render().plain.startswith("two\n")


@pytest.mark.parametrize(("lines", "brief"), [(24, True), (27, True), (28, False), (60, False)])
def test_on_few_lines_it_is_brief(lines: int, brief: bool) -> None:
    panel = Said()
    panel.terminal_lines = lines
    assert panel.brief == brief


class Long(Panel):
    """A hundred lines, drawn one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[int] = []

    def draw(self, report: Report, width: int) -> list[Line]:
        return [partial(self._row, row, report.job.name) for row in range(100)]

    def _row(self, row: int, name: str) -> Content:
        self.asked.append(row)
        if name == "broken" and row == 1:
            raise ValueError("no such row")
        return Content(f"{row} {name if row == 2 else ''}")


class Scrolled(App[None]):
    CSS = "Panel { height: auto; }"

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Long()


async def test_only_lines_in_sight_are_drawn_and_scrolling_draws_the_newest() -> None:
    app = Scrolled()
    async with app.run_test(size=(40, 10)) as pilot:
        panel = app.query_one(Long)
        panel.show(named("one"))
        await pilot.pause()
        assert set(panel.asked) == set(range(10))
        assert screen_lines(app)[2].startswith("2 one")
        app.query_one(VerticalScroll).scroll_to(y=50, animate=False)
        await pilot.pause()
        panel.asked.clear()
        panel.show(named("two"))
        await pilot.pause()
        assert set(panel.asked) == set(range(50, 60))
        app.query_one(VerticalScroll).scroll_to(y=0, animate=False)
        await pilot.pause()
        assert screen_lines(app)[2].startswith("2 two")


async def test_a_line_that_cannot_be_drawn_says_so_and_the_others_stand() -> None:
    app = Scrolled()
    async with app.run_test(size=(40, 10)) as pilot:
        app.query_one(Long).show(named("broken"))
        await pilot.pause()
        lines = screen_lines(app)
        assert lines[1].startswith("✖ cannot be shown: ValueError") and lines[2].startswith("2 broken")


LINES = {
    "plain": Content("no style"),
    "wide characters": Content("模型 ✔").stylize("bold", 0, 2),
    "styles within styles": Content.assemble("a ", ("bold", "bold $text-warning"), " b").stylize("$text-error", 1, 5),
    "one that is cut": Content("x" * 50).stylize("bold", 30),
    "a link": Content("train.py:88").stylize(Style.from_meta({"@click": "app.edit_fix"}), 0, 5),
    "none": Content(""),
}


@pytest.mark.parametrize("name", LINES)
async def test_a_line_is_drawn_as_the_library_draws_content(name: str) -> None:
    class One(Panel):
        def draw(self, report: Report, width: int) -> list[Content]:
            return [Content("first"), LINES[name]]

    class Drawn(App[None]):
        def compose(self) -> ComposeResult:
            yield One()

    app = Drawn()
    async with app.run_test(size=(40, 10)) as pilot:
        panel = app.query_one(One)
        panel.show(named("one"))
        await pilot.pause()
        [general] = Visual.to_strips(panel, LINES[name], 40, 1, panel.visual_style)
        assert list(panel.render_line(1)) == list(general.apply_offsets(0, 1))


class Rows(Panel):
    """As many lines as the job's name has letters."""

    HOLDS_HEIGHT = True

    def draw(self, report: Report, width: int) -> list[Content]:
        return [Content(letter) for letter in report.job.name]


class RowsAbove(App[None]):
    CSS = "Panel { height: auto; }"

    def compose(self) -> ComposeResult:
        yield Rows()
        yield Said()


async def test_rows_that_come_and_go_do_not_move_what_is_below() -> None:
    app = RowsAbove()
    async with app.run_test(size=(40, 10)) as pilot:
        rows, below = app.query_one(Rows), app.query_one(Said)

        async def after(report: Report) -> int:
            rows.show(report)
            await pilot.pause()
            return below.region.y

        assert await after(named("abc")) == 3
        assert [await after(named("ab"[: 1 + n % 2])) for n in range(HELD_REPORTS)] == [3] * HELD_REPORTS
        assert await after(named("a")) == 1
        assert await after(named("abcd")) == 4
        assert await after(named("ab")) == 4
        assert await after(rows.report or named("")) == 2, "not a new report: the user asked for fewer rows"
