"""`/` filters findings and ranks while one types; Enter keeps the filter, Esc shows all again."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import RankStrip
from rn50_advisor.advisor.tui.panels.rank_panel import RankTable
from rn50_advisor.advisor.tui.row_filter import FilterLine, keeps_finding, keeps_rank
from tui_doubles import SIZES, Lines, Replay, Reports, screen_text, settle, shown


@pytest.mark.parametrize(
    ("needle", "rules"),
    [
        ("", ["DAT003", "COM002", "LOP001"]),
        ("dat", ["DAT003"]),
        ("Straggler", ["COM002"]),
        ("train.py", ["DAT003", "LOP001"]),
        ("train.py low", ["LOP001"]),
        ("rank 1", ["DAT003", "COM002"]),
        ("nothing like it", []),
    ],
)
def test_a_finding_is_kept_if_all_words_are_somewhere_in_it(needle: str, rules: list[str]) -> None:
    assert [f.rule for f in samples.running().findings if keeps_finding(needle, f)] == rules


LATE = RankStrip(11, 1, True, "input_wait", 0.1, 5, 0.1, 0.9, host="node1")


@pytest.mark.parametrize(
    ("needle", "kept"),
    [
        ("", True),
        ("11", True),
        ("1", False),
        ("8-15", True),
        ("3, 11", True),
        ("late", True),
        ("late 3", False),
        ("node1 waiting", True),
        ("node2", False),
        ("gone", False),
        ("alive", True),
        ("backward", False),
    ],
)
def test_a_rank_is_kept_by_number_range_host_phase_or_lateness(needle: str, kept: bool) -> None:
    assert keeps_rank(needle, LATE) == kept
    assert keeps_rank("gone", replace(LATE, alive=False)) and not keeps_rank("late", replace(LATE, late_share=None))


async def test_findings_are_filtered_while_one_types_and_all_there_again_after_escape():
    async with shown(Reports(samples.running()), (80, 24)) as (app, pilot):
        await pilot.press("slash")
        await settle(app, pilot)
        assert app.query_one("#views").current == "findings"
        assert app.focused is app.query_one(FilterLine)
        await pilot.press(*"lop q")
        await pilot.press("backspace", "backspace")
        await settle(app, pilot)
        assert "Findings · 1 of 3 match lop" in screen_text(app)
        assert app.selected.startswith("LOP001")
        assert "save every 500 steps" in screen_text(app)
        await pilot.press("enter")
        await settle(app, pilot)
        assert not app.query_one(FilterLine).display
        assert app.focused.id == "finding-list"
        await pilot.press("n")
        assert app.selected.startswith("LOP001"), "the only one that is kept"
        await pilot.press("escape")
        await settle(app, pilot)
        assert "Findings · 3" in screen_text(app)


async def test_ranks_are_filtered_where_they_are_shown_and_stay_so_with_the_next_report():
    source = Reports(samples.many_ranks())
    async with shown(source, (100, 30)) as (app, pilot):
        await pilot.press("3", "slash", *"40-42")
        await settle(app, pilot)
        assert app.query_one("#views").current == "ranks"
        table = app.query_one(RankTable)
        assert [table.row(row).plain.split()[0] for row in range(table.row_count)] == ["41", "40", "42"]
        source.steps.append(samples.many_ranks(slow=7))
        await pilot.press("enter")
        await settle(app, pilot)
        assert table.row_count == 3
        assert "Ranks · 3 of 64 match 40-42" in screen_text(app)


async def test_a_filter_without_a_match_says_so_and_the_other_keys_do_not_fail():
    async with shown(Reports(samples.running()), (140, 45)) as (app, pilot):
        await pilot.press("slash", *"[bold]", "enter")
        await settle(app, pilot)
        text = screen_text(app)
        assert "no finding matches: Esc shows all" in text
        assert "0 of 3 match [bold]" in text
        await pilot.press("n", "y", "2", "3", "1")
        await settle(app, pilot)
        assert app.clipboard, "the verdict's fix"


async def test_in_the_output_the_slash_searches_the_output():
    async with shown(Reports(samples.running()), (100, 30), output=Lines("one")) as (app, pilot):
        await pilot.press("o", "slash")
        await settle(app, pilot)
        assert app.query_one("#needle").display
        assert not app.query_one(FilterLine).display


async def test_a_click_on_a_column_orders_ranks():
    async with shown(Reports(samples.many_ranks()), (100, 30)) as (app, pilot):
        await pilot.press("3")
        await settle(app, pilot)
        rows = screen_text(app).split("\n")
        at = next(y for y, row in enumerate(rows) if "step time" in row)
        await pilot.click(offset=(rows[at].index("rank"), at))
        await settle(app, pilot)
        assert "ordered by rank" in screen_text(app)
        await pilot.click(offset=(rows[at].index("late"), at))
        await settle(app, pilot)
        assert "· late first" in screen_text(app)


@pytest.mark.parametrize("size", SIZES)
async def test_a_hidden_filter_never_has_the_focus_so_keys_reach_the_screen(size):
    async with shown(Replay(samples.running()), size) as (app, pilot):
        assert not isinstance(app.focused, FilterLine)
        await pilot.press("2", "q")
        await pilot.pause()
    assert app.return_value == "quit"
