"""Throughput on the screen."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.panels.throughput_panel import (
    ThroughputChart,
    ThroughputFacts,
    failed_lines,
    waiting_lines,
)
from tui_doubles import Reports, screen_text, shown


def test_a_large_screen_shows_the_energy() -> None:
    drawn = {width: "\n".join(map(str, ThroughputFacts().draw(samples.with_energy(), width))) for width in (40, 100)}
    assert "1.54 J/sample" in drawn[100] and "J/sample" not in drawn[40] and "steady" in drawn[40]


async def test_the_large_digits_are_there_where_the_terminal_is_high():
    async with shown(Reports(samples.running()), (140, 45)) as (app, _):
        assert app.query_one("#digits").region
    async with shown(Reports(samples.running()), (80, 24)) as (app, _):
        assert not app.query_one("#digits").region
        assert "109 samples/s" in screen_text(app)


async def test_a_young_run_says_what_it_waits_for():
    async with shown(Reports(samples.young()), (80, 24)) as (app, _):
        text = screen_text(app)
        for part in (
            "… WAITING",
            "waiting for the first step",
            "0:06 since the start",
            "rank 0: starting up for 3.10 s (pid 100)",
        ):
            assert part in text
        assert "no step has ended yet" in text


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 56)])
async def test_a_job_that_hangs_shows_where_it_stands_instead_of_its_rates(size: tuple[int, int]) -> None:
    async with shown(Reports(samples.hang()), size) as (app, _):
        text = screen_text(app)
        assert (
            "Last progress" in text
            and "✖ last step 412" in text
            and "rank 1: waiting for input for 4m 12s, step 412 (pid 101)" in text
        )
        assert "augment (data/augment.py:57)" in text and "before: 109 samples/s" in text
        assert not app.query_one("#digits").region


def test_a_dead_ranks_last_step_and_phase_are_shown() -> None:
    rows = [content.plain for content in failed_lines(samples.dead_rank(), 80)]
    assert rows[:2] == ["✖ last step 301", "rank 1: gone, last forward, step 301 (pid 101)"]
    assert len(failed_lines(replace(samples.dead_rank(), ranks=(), findings=()), 80)) == 2


async def test_numbers_of_a_live_report_keep_their_columns():
    """A value that gets a digit more moves nothing beside it."""
    low = samples.running()
    high = replace(low, throughput=replace(low.throughput, samples_per_s=1231.9, steps_per_s=19.2))
    columns = []
    for report in (low, high):
        async with shown(Reports(report), (80, 24)) as (app, _):
            line = next(line for line in screen_text(app).split("\n") if "samples/s " in line and "steps/s" in line)
            columns.append((line.index("step "), line.index("median"), line.index("p95")))
    assert columns[0] == columns[1]


def test_a_run_without_a_step_says_where_its_ranks_are() -> None:
    assert [content.plain for content in waiting_lines(samples.young(), 60)] == [
        "… waiting for the first step   0:06 since the start",
        "rank 0: starting up for 3.10 s (pid 100)",
        "rank 1: starting up for 2.90 s (pid 101)",
    ]
    nobody = replace(samples.young(), ranks=())
    assert waiting_lines(nobody, 100)[1].plain.startswith("no process trains yet")
    assert waiting_lines(samples.inconclusive(), 60)[0].plain == "no step was seen   the job ended after 0:00"
    many = replace(samples.young(), ranks=samples.many_ranks(9, slow=1).ranks)
    rows = waiting_lines(many, 60)
    assert len(rows) == 5 and rows[-1].plain == "and 6 ranks more"


def chart(report: Report, rows: int, width: int = 60) -> list[str]:
    drawn = ThroughputChart()
    drawn.rows = rows
    return [content.plain for content in drawn.draw(report, width)]


def test_the_chart_has_its_top_and_below_it_the_runs_segments() -> None:
    rows = chart(samples.bottleneck(), 3, 140)
    assert len(rows) == 4 and rows[0].rstrip().endswith("46/s")
    assert rows[3].startswith("0:02") and rows[3].rstrip().endswith("3:58") and "k" in rows[3] and "e" in rows[3]
    assert len(chart(samples.bottleneck(), 1)) == 1


@pytest.mark.parametrize("rows", [1, 3])
def test_without_a_rate_the_chart_keeps_its_height(rows: int) -> None:
    nothing = chart(samples.empty(), rows)
    assert len(nothing) == rows and nothing[0].startswith("no rate over time yet")
