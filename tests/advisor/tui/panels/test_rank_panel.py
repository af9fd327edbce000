"""All ranks on the screen: a table that keeps its place, with hosts where there are several."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import NodeStrip
from rn50_advisor.advisor.tui.panels.rank_panel import named_ranks
from tui_doubles import SIZES, Reports, screen_text, settle, shown, until


@pytest.mark.parametrize("size", [(80, 24), (140, 50)])
async def test_ranks_are_shown_with_their_host(size: tuple[int, int]) -> None:
    async with shown(Reports(samples.on_two_hosts()), size) as (app, pilot):
        for key in "12345":
            await pilot.press(key)
            await settle(app, pilot)
            text = screen_text(app)
            if "Ranks ·" in text:
                assert "node0" in text and "node1" in text
                return
    raise AssertionError("no view shows the ranks")


async def test_five_hundred_ranks_on_eight_hosts_are_usable_in_eighty_columns() -> None:
    one = samples.on_two_hosts().ranks[0]
    ranks = tuple(
        replace(one, rank=n, host=f"gpu-node-{n // 64}", step=123_456, late_share=0.97 if n == 300 else 0.0)
        for n in range(512)
    )
    nodes = tuple(NodeStrip(f"gpu-node-{h}", tuple(range(64 * h, 64 * h + 64))) for h in range(8))
    async with shown(Reports(replace(samples.on_two_hosts(), ranks=ranks, nodes=nodes)), (80, 24)) as (app, pilot):
        await pilot.press("3", "a")
        await settle(app, pilot)
        text = screen_text(app)
        row = next(line for line in text.split("\n") if line.split()[:1] == ["300"])
        assert "97 %" in row and "node-4" in row and "123,456" in row
        assert all(name in text for name in ("host", "now", "step time", "late"))
        await pilot.press("end")
        await until(pilot, lambda: any(line.split()[:1] == ["511"] for line in screen_text(app).split("\n")))


async def test_a_job_on_one_host_has_no_column_for_it() -> None:
    async with shown(Reports(samples.running()), (140, 50)) as (app, pilot):
        for key in "12345":
            await pilot.press(key)
            await settle(app, pilot)
            text = screen_text(app)
            if "Ranks ·" in text:
                assert "host " not in text.split("Ranks ·")[1].split("\n")[1]
                return
    raise AssertionError("no view shows the ranks")


@pytest.mark.parametrize("size", SIZES)
async def test_sixty_four_ranks_stay_usable(size):
    async with shown(Reports(samples.many_ranks()), size) as (app, pilot):
        assert "rank 41" in screen_text(app)
        assert "ranks more" in screen_text(app)
        await pilot.press("3", "a")
        await settle(app, pilot)
        await pilot.press("end")
        await settle(app, pilot)
        assert any("63" in line.split()[:2] for line in screen_text(app).split("\n"))
        await pilot.press("home")
        await settle(app, pilot)
        text = screen_text(app)
        assert "Ranks · 64 · late first" in text
        assert "97 %" in text


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_the_rank_of_the_verdict_is_pinned_and_of_many_the_late_come_first(size: tuple[int, int]) -> None:
    made = samples.many_ranks()
    strips = list(made.ranks)
    strips[50] = replace(strips[50], late_share=0.99)
    async with shown(Reports(replace(made, ranks=tuple(strips))), size) as (app, pilot):
        await pilot.press("3", "a")
        await settle(app, pilot)
        rows = [line.split() for line in screen_text(app).split("\n")]
        order = [(row[0], row[1]) for row in rows if len(row) > 5 and row[1] in "▲▶"]
        assert order[:3] == [("41", "▲"), ("50", "▶"), ("0", "▶")]
        assert "late first, ▲ verdict's on top" in screen_text(app)


def test_ranks_are_pinned_only_if_they_are_few() -> None:
    made = samples.many_ranks()
    assert named_ranks(made) == {41}
    assert named_ranks(samples.running()) == frozenset(), "both of two"
    assert named_ranks(replace(made, findings=())) == frozenset()


async def test_a_rank_table_keeps_its_place_while_values_change():
    first = samples.many_ranks()
    second = replace(first, ranks=tuple(replace(r, step=777) for r in first.ranks))
    source = Reports(first)
    async with shown(source, (100, 30)) as (app, pilot):
        await pilot.press("3", "a", *["down"] * 30)
        await settle(app, pilot)
        table = app.query_one("#rank-table")
        before = (table.cursor_row, table.scroll_y)
        source.steps.append(second)
        await until(pilot, lambda: "777" in screen_text(app))
        assert (table.cursor_row, table.scroll_y) == before
        assert before[0] == 30


async def test_alike_ranks_share_a_row_below_the_one_that_differs():
    async with shown(Reports(samples.many_ranks()), (120, 36)) as (app, pilot):
        await pilot.press("3")
        await settle(app, pilot)
        table = app.query_one("#rank-table")
        assert [table.row(row).plain.split()[0] for row in range(table.row_count)] == ["41", "63×"]
        assert "63 alike in one row (a: all)" in screen_text(app)
        await pilot.press("a")
        await settle(app, pilot)
        assert table.row_count == 64 and "alike" not in table.border_title


async def test_the_cursor_is_seen_where_there_are_too_few_colours_for_its_background():
    async with shown(Reports(samples.many_ranks()), (80, 24)) as (app, pilot):
        await pilot.press("3", "a", "down")
        await settle(app, pilot)
        table = app.query_one("#rank-table")
        bold = [
            all(part.style.bold for part in table.render_line(y) if part.text.strip() and part.style) for y in (1, 2, 3)
        ]
        assert table.cursor_row == 1 and bold == [False, True, False]
