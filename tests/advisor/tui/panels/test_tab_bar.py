"""The views in one line with their counts, and where a replay stands."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.app import App, ComposeResult

import report_samples as samples
import trial_samples
from rn50_advisor.advisor.tui.panels.tab_bar import FASTEST, SLOWEST, VIEWS, ReplayBar, TabBar
from tui_doubles import Replay, shown


class Bars(App[None]):
    def __init__(self, replay: Replay) -> None:
        super().__init__()
        self.replay = replay

    def compose(self) -> ComposeResult:
        yield TabBar(id="tabs")
        yield ReplayBar(self.replay, id="replay")


def text(bar: TabBar | ReplayBar) -> str:
    return str(bar.render())


async def test_the_open_view_is_marked_and_the_others_have_their_counts() -> None:
    app = Bars(Replay())
    async with app.run_test(size=(120, 5)) as pilot:
        tabs = app.query_one(TabBar)
        tabs.show(None)
        first = [word for view in VIEWS[:-1] for word in (view.key, *view.title.split())]
        assert text(tabs).split() == ["▸", *first], "there are no trials"
        tabs.show(samples.running())
        tabs.active = "checks"
        await pilot.pause()
        shown = text(tabs)
        assert "2 Findings 3" in shown and "3 Ranks 2" in shown and "▸ 5 Checks 1 not measured" in shown
        tabs.show(samples.young())
        assert "not measured" not in text(tabs), "rules have not looked yet"


@pytest.mark.parametrize(
    ("width", "shown"),
    [
        (
            120,
            " 1 Overview   2 Findings 3   3 Ranks 2   4 Machine   5 Checks 1 not measured   6 Over time   7 Trials 8 ",
        ),
        (80, "▸1 Overview 2 Findings·3 3 Ranks·2 4 Machine 5 Checks·1 6 Over time 7 Trials·8"),
        (74, "▸1 Overview 2 Findings 3 Ranks 4 Machine 5 Checks 6 Over time 7 Trials"),
    ],
)
async def test_where_the_line_is_short_the_views_stand_closer(width: int, shown: str) -> None:
    app = Bars(Replay())
    async with app.run_test(size=(width, 5)) as pilot:
        tabs = app.query_one(TabBar)
        tabs.show(replace(samples.bottleneck(), tried=trial_samples.several()))
        await pilot.pause()
        assert text(tabs).strip().removeprefix("▸ ") == shown.strip()


async def test_a_replay_is_led_within_its_ends_and_speeds() -> None:
    replay = Replay(duration_s=200.0)
    app = Bars(replay)
    async with app.run_test(size=(120, 5)):
        bar = app.query_one(ReplayBar)
        bar.put()
        assert "▶ replay" in text(bar) and "0:30" in text(bar) and "3:20" in text(bar) and "space pause" in text(bar)
        bar.pause()
        assert replay.paused and "‖ paused" in text(bar)
        for act, position_s in (
            (lambda: bar.seek(-10.0), 20.0),
            (lambda: bar.leap(1), 80.0),
            (lambda: bar.leap(-1), 20.0),
            (lambda: bar.seek_to(0.5), 100.0),
            (lambda: bar.seek_to(1.0), 200.0),
        ):
            act()
            assert replay.position_s == position_s
        for direction, end in ((1, FASTEST), (-1, SLOWEST)):
            for _ in range(20):
                bar.change_speed(direction)
            assert replay.speed == end


@pytest.mark.parametrize(("duration_s", "leap_s"), [(100.0, 60.0), (100_000.0, 2000.0)])
async def test_a_leap_is_a_minute_or_a_fiftieth_of_a_long_run(duration_s: float, leap_s: float) -> None:
    replay = Replay(duration_s=duration_s)
    app = Bars(replay)
    async with app.run_test(size=(60, 5)):
        app.query_one(ReplayBar).leap(1)
    assert replay.position_s == 30.0 + leap_s


def test_every_view_has_a_key_of_its_own() -> None:
    assert [view.key for view in VIEWS] == ["1", "2", "3", "4", "5", "6", "7"]
    assert len({view.id for view in VIEWS}) == len(VIEWS) == len({view.title for view in VIEWS})


async def test_a_click_on_the_time_line_goes_there_and_one_left_of_it_pauses() -> None:
    replay = Replay(duration_s=200.0)
    app = Bars(replay)
    async with app.run_test(size=(60, 5)) as pilot:
        bar = app.query_one(ReplayBar)
        bar.put()
        meter = [x for x, sign in enumerate(text(bar)) if sign in "━╸─"]
        await pilot.click("#replay", offset=(meter[-1], 0))
        assert replay.position_s == 200.0
        await pilot.click("#replay", offset=(meter[0], 0))
        assert replay.position_s == 0.0
        await pilot.click("#replay", offset=(2, 0))
        assert replay.paused and replay.position_s == 0.0


async def test_the_mouse_drags_the_replay_along_the_time_line():
    async with shown(Replay(samples.running()), (100, 30)) as (app, pilot):
        bar = app.query_one(ReplayBar)
        begin, cells = bar._meter
        await pilot.mouse_down(ReplayBar, offset=(begin + 1, 0))
        await pilot.hover(ReplayBar, offset=(begin + cells - 1, 0))
        await pilot.pause()
        assert app.replay.position_s == app.replay.duration_s
        await pilot.mouse_up(ReplayBar, offset=(begin + cells - 1, 0))
        await pilot.hover(ReplayBar, offset=(begin, 0))
        await pilot.pause()
        assert app.replay.position_s == app.replay.duration_s and app.mouse_captured is None
