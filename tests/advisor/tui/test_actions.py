"""Keys do what footer, help and palette say."""

from __future__ import annotations

import json
import re

import pytest

import report_samples as samples
from rn50_advisor.advisor.tui.actions import ACTIONS, HelpScreen
from rn50_advisor.advisor.tui.dialog import Choice
from rn50_advisor.advisor.tui.panels.finding_detail import DetailPanel
from rn50_advisor.advisor.tui.panels.finding_list import FindingList
from rn50_advisor.advisor.tui.panels.tab_bar import VIEWS
from tui_doubles import Lines, Replay, Reports, screen_text, settle, shown, until


@pytest.mark.parametrize("view", VIEWS, ids=lambda view: view.id)
async def test_a_number_opens_its_view(view):
    async with shown(Reports(samples.running()), (80, 24)) as (app, pilot):
        await pilot.press(view.key)
        await settle(app, pilot)
        assert app.query_one("#views").current == view.id
        assert re.search(rf"▸ ?{view.key} {view.title}", screen_text(app))


async def test_a_click_on_its_name_opens_a_view():
    async with shown(Reports(samples.running()), (80, 24)) as (app, pilot):
        column = screen_text(app).split("\n")[4].index("Ranks")
        await pilot.click("#tabs", offset=(column, 0))
        await settle(app, pilot)
        assert app.query_one("#views").current == "ranks"


async def test_next_and_previous_walk_through_the_findings_in_every_place_at_once():
    async with shown(Reports(samples.running()), (140, 45)) as (app, pilot):
        seen = []
        for _ in range(4):
            seen.append(app.selected.partition("|")[0])
            await pilot.press("n")
        assert seen == ["DAT003", "COM002", "LOP001", "DAT003"]
        await pilot.press("p")
        assert app.selected.startswith("DAT003")
        await pilot.press("p")
        await settle(app, pilot)
        assert app.selected.startswith("LOP001")
        assert {panel.key for panel in app.query(DetailPanel)} == {app.selected}
        assert {listed.selected_key() for listed in app.query("#finding-list-short").results(FindingList)} == {
            app.selected
        }
        assert "save every 500 steps" in screen_text(app)


async def test_on_a_small_screen_the_first_n_opens_the_findings():
    async with shown(Reports(samples.running()), (80, 24)) as (app, pilot):
        await pilot.press("n")
        await settle(app, pilot)
        assert app.query_one("#views").current == "findings"
        assert app.selected.startswith("DAT003")
        await pilot.press("n")
        await settle(app, pilot)
        assert app.selected.startswith("COM002")


async def test_the_selection_survives_a_report_with_other_numbers():
    source = Reports(samples.running())
    async with shown(source, (140, 45)) as (app, pilot):
        await pilot.press("n", "n")
        polls = source.polls
        source.steps.append(samples.round_trip(samples.running()))
        await until(pilot, lambda: source.polls > polls + 2)
        assert app.selected.startswith("LOP001")


async def test_copying_puts_the_whole_finding_on_the_clipboard_as_text():
    async with shown(Reports(samples.running()), (80, 24)) as (app, pilot):
        await pilot.press("c")
        copied = app.clipboard
        for part in (
            "DAT003",
            "Loading happens in the training process",
            "samples/train.py:142",
            "num_workers=6",
            "2.1–2.9×",
        ):
            assert part in copied
        assert "\x1b" not in copied


@pytest.mark.parametrize("key", ["n", "p", "c"])
async def test_without_findings_the_finding_keys_say_so(key):
    async with shown(Reports(samples.healthy()), (80, 24)) as (app, pilot):
        await pilot.press(key)
        await until(pilot, lambda: "There is no finding" in screen_text(app))


@pytest.mark.parametrize(("key", "form"), [("h", "html"), ("m", "md"), ("j", "json")])
async def test_saving_hands_the_shown_report_to_the_callback(key, form, tmp_path):
    def save(report, wanted):
        path = tmp_path / f"report.{wanted}"
        path.write_text(json.dumps(report.as_json()))
        return path

    async with shown(Reports(samples.hang()), (140, 30), save=save) as (app, pilot):
        await pilot.press("s")
        await settle(app, pilot)
        assert isinstance(app.screen, Choice)
        await pilot.press(key)
        await until(pilot, lambda: "Saved" in screen_text(app))
        saved = json.loads((tmp_path / f"report.{form}").read_text())
        assert saved["verdict"]["rule"] == "RUN001"


async def test_a_report_that_cannot_be_saved_says_why():
    def save(report, wanted):
        raise OSError(28, "No space left on device")

    async with shown(Reports(samples.hang()), (140, 30), save=save) as (app, pilot):
        await pilot.press("s", "enter")
        await until(pilot, lambda: "No space left on device" in screen_text(app))


async def test_escape_saves_nothing():
    async with shown(Reports(samples.hang()), save=lambda report, form: pytest.fail("saved")) as (app, pilot):
        await pilot.press("s", "escape")
        await settle(app, pilot)
        assert not isinstance(app.screen, Choice)


async def test_help_lists_every_key_that_works_here_and_what_the_marks_mean():
    async with shown(Reports(samples.hang()), (100, 30)) as (app, pilot):
        await pilot.press("question_mark")
        await settle(app, pilot)
        assert isinstance(app.screen, HelpScreen)
        text = app.screen.query_one("#help Static").render().plain
        for action in ACTIONS:
            assert (action.what in text) == app.can(action.needs), action
        assert "communication (exposed)" in text
        assert "not measured: neither zero nor fine" in text
        await pilot.press("escape")
        await settle(app, pilot)
        assert not isinstance(app.screen, HelpScreen)


def test_every_action_has_a_description_and_no_two_share_a_key():
    keys = [key for action in ACTIONS for key in action.keys.split(",")]
    assert len(keys) == len(set(keys))
    assert all(action.what and action.shown for action in ACTIONS)


async def test_the_footer_shows_only_what_works_here():
    async with shown(Reports(samples.hang()), (100, 30)) as (app, _):
        foot = screen_text(app).split("\n")[-1]
        assert "q Quit" in foot
        assert "HTML" not in foot
        assert "Output" not in foot
    async with shown(Reports(samples.hang()), (80, 24), output=Lines("x"), save=lambda r, f: "x") as (app, _):
        foot = screen_text(app).split("\n")[-1]
        for word in ("q Quit", "1–7 View", "? Help", "y Copy", "e Edit", "/ Find", "w HTML", "o Output"):
            assert word in foot


async def test_the_palette_mirrors_the_actions():
    async with shown(Reports(samples.running()), (100, 40)) as (app, pilot):
        await pilot.press("ctrl+p")
        await settle(app, pilot)
        await pilot.press(*"every rank")
        await until(pilot, lambda: "Views: every rank" in screen_text(app))
        await pilot.press("down", "enter")
        await until(pilot, lambda: app.base.query_one("#views").current == "ranks")


async def test_reports_that_come_while_a_dialogue_is_open_reach_the_screen_below():
    source = Reports(samples.healthy())
    async with shown(source, (100, 30)) as (app, pilot):
        await pilot.press("question_mark")
        source.steps.append(samples.running())
        await until(pilot, lambda: not source.steps and app.report.verdict.rule == "DAT003")
        await pilot.press("escape")
        await settle(app, pilot)
        assert "▲ BOTTLENECK" in screen_text(app)


async def test_replay_keys_pause_seek_and_change_the_speed():
    replay = Replay(samples.running())
    async with shown(replay, (140, 30)) as (app, pilot):
        assert "▶ replay" in screen_text(app)
        assert "0:30" in screen_text(app)
        assert "1:40" in screen_text(app)
        await pilot.press("space")
        await settle(app, pilot)
        assert replay.paused
        assert "‖ paused" in screen_text(app)
        await pilot.press("full_stop", "full_stop", "comma")
        assert replay.position_s == 40.0
        await pilot.press("greater_than_sign")
        assert replay.position_s == 100.0
        await pilot.press("less_than_sign")
        assert replay.position_s == 40.0
        await pilot.press("plus", "plus")
        await settle(app, pilot)
        assert replay.speed == 4.0
        assert "4×" in screen_text(app)
        await pilot.press("minus")
        assert replay.speed == 2.0
        await pilot.press("space")
        assert not replay.paused


async def test_a_replay_of_days_is_crossed_by_leaps_and_its_ends_are_one_key_away():
    replay = Replay(samples.running(), duration_s=1_000_000.0)
    async with shown(replay, (100, 30)) as (_, pilot):
        await pilot.press("G")
        assert replay.position_s == 1_000_000.0
        await pilot.press("less_than_sign")
        assert replay.position_s == 980_000.0
        await pilot.press("g")
        assert replay.position_s == 0.0


async def test_a_live_run_has_no_replay_keys():
    async with shown(Reports(samples.running()), (100, 30)) as (app, pilot):
        await pilot.press("space", "full_stop", "plus")
        assert not app.query("#replay")
        assert app.check_action("pause_replay", ()) is False
