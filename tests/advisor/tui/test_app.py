"""Every report at every size: values where they belong, nothing beyond the edge, nothing made up."""

from __future__ import annotations

from dataclasses import replace

import pytest

import screen_reports as samples
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.report import OutcomeRow
from rn50_advisor.advisor.tui.panels.banner import Banner
from rn50_advisor.advisor.tui.panels.tab_bar import VIEWS
from rn50_advisor.advisor.tui.panels.throughput_panel import ThroughputChart
from screen_overflow import overflows
from tui_doubles import SIZES, Lines, Reports, screen_text, settle, shown, until


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", samples.ALL)
async def test_every_report_fits_every_view_at_every_size(name, size):
    async with shown(Reports(samples.round_trip(samples.ALL[name]())), size, output=Lines("one", "two")) as (
        app,
        pilot,
    ):
        for view in VIEWS:
            await pilot.press(view.key)
            await settle(app, pilot)
            text = screen_text(app)
            assert overflows(app) == []
            assert "cannot be shown" not in text
            assert "nan" not in text.lower().replace("finance", "")
            assert "None" not in text


@pytest.mark.parametrize("size", SIZES)
async def test_overview_shows_verdict_throughput_budget_and_capacities(size):
    async with shown(Reports(samples.input_bound()), size) as (app, _):
        text = screen_text(app)
        for part in (
            "▲ BOTTLENECK",
            "DAT003",
            "1.8–2.1× faster if fixed",
            "Both ranks spend 62 %",
            "running 12:07",
            "276 ms median",
            "301 ms p95",
            "3.62 steps/s",
            "critical I 62% ╱",
            "rank 1   I 60% ╱",
            "preprocessing",
            "402–471",
            "◀ bottleneck",
            "◁ caps gain",
            "not measured: no CUDA device",
        ):
            assert part in text
        smallest = next(line for line in text.split("\n") if "◀ bottleneck" in line)
        assert "loader hand-over" in smallest
        assert "228" in smallest


async def test_the_forecast_over_workers_is_drawn_where_there_is_room_and_told_elsewhere():
    async with shown(Reports(samples.input_bound()), (140, 50)) as (app, _):
        rows = screen_text(app).split("\n")
        assert any("3 workers" in row and "━" in row and "◁ knee" in row and "330–390" in row for row in rows)
        assert any("0 workers" in row and "232" in row and "◀ measured" in row for row in rows)
    async with shown(Reports(samples.input_bound()), (140, 30)) as (app, _):
        assert "workers: 0 → 232 (measured), 1 → 240–262" in " ".join(screen_text(app).split())


async def test_the_large_digits_are_there_where_the_terminal_is_high():
    async with shown(Reports(samples.input_bound()), (140, 45)) as (app, _):
        assert app.query_one("#digits").region
    async with shown(Reports(samples.input_bound()), (80, 24)) as (app, _):
        assert not app.query_one("#digits").region
        assert "232 samples/s" in screen_text(app)


async def test_a_wide_screen_shows_findings_with_evidence_beside_the_overview():
    async with shown(Reports(samples.input_bound()), (200, 60)) as (app, _):
        text = screen_text(app)
        for part in (
            "Findings · 3",
            "CMP007",
            "What to change",
            "samples/train.py:88",
            "threshold",
            "Host · trainer-3",
        ):
            assert part in text


async def test_findings_view_has_evidence_with_units_fixes_and_relations():
    async with shown(Reports(samples.input_bound()), (100, 45)) as (app, pilot):
        await pilot.press("2")
        await settle(app, pilot)
        text = screen_text(app)
        for part in (
            "✖ critical",
            "◆ medium",
            "└ ● low",
            "ranks 0, 1",
            "confidence 95 %",
            "costs 170 ms a step",
            "118–149 ms less a step",
            "preprocessing per sample",
            "2.27 ms",
            "62 %",
            "5.0 %",
            "give the loader workers (one line)",
            "samples/train.py:88",
            "num_workers=3",
            "→ explains CMP007 rank 1 computes slower than the others",
        ):
            assert part in text
        await pilot.press("n")
        await settle(app, pilot)
        assert "→ explained by DAT003" in screen_text(app)


async def test_machine_view_shows_numbers_alarms_and_dashes():
    report = samples.healthy()
    assert report.host
    report = replace(report, host=replace(report.host, steal_pct=7.5, shm_used_bytes=None, shm_total_bytes=None))
    async with shown(Reports(report), (140, 45)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        text = screen_text(app)
        for part in ("8 × NVIDIA H100", "97 %", "61.2 GiB/79.6 GiB", "612/700 W", "60 °C", "1755/1980 MHz", "! 7.5 %"):
            assert part in text
        assert "99.8 of 192 allowed" in text
        assert "– of –" in text


async def test_what_was_not_measured_names_its_reason():
    async with shown(Reports(samples.input_bound()), (100, 45)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        assert "not measured: no GPU seen" in screen_text(app)
        assert "no NVIDIA driver on this machine (expected on a CPU machine)" in screen_text(app)
        await pilot.press("5")
        await settle(app, pilot)
        text = screen_text(app)
        for part in (
            "3 fired · 1 crashed · 2 not measured · 8 clear",
            "✖ LOP004  crashed",
            "needs disk.read_bytes, fetch_blocks",
            "psi.cpu_some_s (host)",
            "→ boot with psi=1",
            "14.2 µs",
            "share of workers' time",
            "shed to stay cheap: per-process disk",
            "2.15.0",
        ):
            assert part in text


async def test_rules_that_one_thing_keeps_from_looking_share_a_line_with_its_reason():
    unseen = [OutcomeRow(f"COM{n:03d}", "not_measured", ("comm.wire_s", f"other{n}")) for n in range(3)]
    unseen += [OutcomeRow(f"GPU{n:03d}", "not_measured", (f"gpu.value{n}",)) for n in range(3)]
    gaps = (ProbeGap("comm.wire_s", "job", "one rank: nothing to communicate"),)
    report = replace(samples.input_bound(), gpus=(), gaps=gaps, outcomes=(OutcomeRow("DAT001", "clear"), *unseen))
    async with shown(Reports(report), (100, 45)) as (app, pilot):
        await pilot.press("5")
        await settle(app, pilot)
        text = screen_text(app)
        assert "– COM000 COM001 COM002: one rank: nothing to communicate" in text
        assert "– GPU000 GPU001 GPU002: no GPU seen" in text
        assert text.index("clear: DAT001") < text.index("COM000")


@pytest.mark.parametrize("size", SIZES)
async def test_sixty_four_ranks_stay_usable(size):
    async with shown(Reports(samples.many_ranks()), size) as (app, pilot):
        assert "rank 41" in screen_text(app)
        assert "ranks more" in screen_text(app)
        await pilot.press("3")
        await settle(app, pilot)
        await pilot.press("end")
        await settle(app, pilot)
        assert any(line.split()[:1] == ["63"] for line in screen_text(app).split("\n"))
        await pilot.press("r", "home")
        await settle(app, pilot)
        text = screen_text(app)
        assert "ordered by late first" in text
        assert "97 %" in text


async def test_a_rank_table_keeps_its_place_while_values_change():
    first = samples.many_ranks()
    second = replace(first, ranks=tuple(replace(r, step=777) for r in first.ranks))
    source = Reports(first)
    async with shown(source, (100, 30)) as (app, pilot):
        await pilot.press("3", *["down"] * 30)
        await settle(app, pilot)
        table = app.query_one("#rank-table")
        before = (table.cursor_row, table.scroll_y)
        source.steps.append(second)
        await until(pilot, lambda: "777" in screen_text(app))
        assert (table.cursor_row, table.scroll_y) == before
        assert before[0] == 30


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


async def test_before_any_report_the_screen_says_that_it_reads():
    async with shown(Reports(), (80, 24)) as (app, _):
        assert "… reading" in screen_text(app)


async def test_the_end_of_the_job_stands_in_the_banner():
    async with shown(Reports(samples.dead_rank()), (100, 30)) as (app, _):
        assert "✖ ended, exit code 1, after 1:33" in screen_text(app)
    killed = replace(samples.dead_rank(), job=replace(samples.dead_rank().job, exit_code=None, exit_signal="SIGKILL"))
    async with shown(Reports(killed), (100, 30)) as (app, _):
        assert "✖ ended by SIGKILL" in screen_text(app)
    good = replace(samples.healthy(), job=replace(samples.healthy().job, running=False, exit_code=0))
    async with shown(Reports(good), (100, 30)) as (app, _):
        assert "✔ ended, exit code 0" in screen_text(app)


async def test_trouble_of_the_source_is_a_line_and_goes_when_it_does():
    source = Reports(samples.healthy(), NotARun("run.sqlite is locked", "wait a moment"))
    async with shown(source, (100, 30)) as (app, pilot):
        trouble = app.query_one("#trouble")
        await until(pilot, lambda: trouble.display)
        assert "run.sqlite is locked → wait a moment" in screen_text(app)
        assert "✔ HEALTHY" in screen_text(app)
        source.steps.append(samples.input_bound())
        await until(pilot, lambda: "BOTTLENECK" in screen_text(app))
        assert not trouble.display


async def test_an_unexpected_error_of_the_source_is_a_line_too():
    async with shown(Reports(ZeroDivisionError("oh"), samples.healthy()), (100, 30)) as (app, pilot):
        await until(pilot, lambda: "✔ HEALTHY" in screen_text(app))


async def test_a_part_that_cannot_draw_leaves_the_others_alone(monkeypatch):
    def broken(self, report, width):
        raise ValueError("no such phase")

    monkeypatch.setattr(ThroughputChart, "draw", broken)
    async with shown(Reports(samples.input_bound()), (100, 30)) as (app, _):
        text = screen_text(app)
        assert "✖ cannot be shown: ValueError: no such phase" in text
        assert "▲ BOTTLENECK" in text
        assert "◀ bottleneck" in text


async def test_numbers_of_a_live_report_keep_their_columns():
    """A value that gets a digit more moves nothing beside it."""
    low = samples.input_bound()
    high = replace(low, throughput=replace(low.throughput, samples_per_s=1231.9, steps_per_s=19.2))
    columns = []
    for report in (low, high):
        async with shown(Reports(report), (80, 24)) as (app, _):
            line = next(line for line in screen_text(app).split("\n") if "samples/s " in line and "steps/s" in line)
            columns.append((line.index("step "), line.index("median"), line.index("p95")))
    assert columns[0] == columns[1]


async def test_a_new_size_lays_the_screen_out_anew():
    async with shown(Reports(samples.input_bound()), (80, 24)) as (app, pilot):
        for size in ((200, 60), (100, 30), (140, 45), (80, 24)):
            await pilot.resize_terminal(*size)
            await settle(app, pilot)
            assert overflows(app) == []
            assert ("What to change" in screen_text(app)) == (size[0] >= 140)


@pytest.mark.parametrize("theme", ["textual-dark", "textual-light", "nord", "textual-ansi"])
async def test_every_theme_shows_the_same_words(theme):
    async with shown(Reports(samples.many_ranks()), (140, 45)) as (app, pilot):
        if theme not in app.available_themes:
            pytest.skip(f"this Textual has no {theme}")
        app.theme = theme
        await pilot.press("3")
        await settle(app, pilot)
        assert "▲ BOTTLENECK" in screen_text(app)
        assert "F 25%" in screen_text(app)


async def test_without_colours_letters_and_words_still_tell_everything(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(Reports(samples.input_bound()), (100, 30)) as (app, _):
        text = screen_text(app)
        assert "▲ BOTTLENECK" in text
        assert "I 62% ╱" in text
        assert app.query_one(Banner).region.height == 4


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_names_that_look_like_markup_or_escapes_are_only_text(size):
    evil = "[/bold] [red]x[/] [@click=app.quit]q[/] \x1b[2J\n日本語"
    base = samples.input_bound()
    assert base.host
    finding = replace(
        base.findings[0], title=evil, evidence=(replace(base.findings[0].evidence[0], metric=evil, note=evil),)
    )
    report = replace(
        base,
        verdict=replace(base.verdict, title=evil, summary=evil),
        job=replace(base.job, argv=("train.py", evil), name=evil),
        findings=(finding,),
        host=replace(base.host, name=evil),
        gpus=(replace(samples.gpu(0), name=evil),),
        gaps=(replace(base.gaps[0], reason=evil, hint=evil),),
        environment={evil: evil},
    )
    async with shown(Reports(report), size, title=evil) as (app, pilot):
        for view in VIEWS:
            await pilot.press(view.key)
            await settle(app, pilot)
            assert overflows(app) == []
            text = screen_text(app)
            assert "[red]x[/]" in text
            assert "cannot be shown" not in text
            assert "\x1b" not in text


async def test_a_running_job_that_is_no_longer_recorded_is_pointed_out(monkeypatch):
    monkeypatch.setattr("rn50_advisor.advisor.tui.panels.banner._SILENT_S", 0.0)
    async with shown(Reports(samples.input_bound()), (100, 30)) as (app, pilot):
        await until(pilot, lambda: "nothing new has been recorded" in screen_text(app))
    async with shown(Reports(samples.dead_rank(), None, None), (100, 30)) as (app, pilot):
        await pilot.pause(0.2)
        assert "nothing new" not in screen_text(app)


async def test_the_facts_of_a_run_are_readable():
    report = replace(
        samples.input_bound(), environment={"mem_total_bytes": 2.0**35, "driver": None, "gpus": [], "smt": False}
    )
    async with shown(Reports(report), (100, 60)) as (app, pilot):
        await pilot.press("5")
        await settle(app, pilot)
        await pilot.press("end")
        await settle(app, pilot)
        rows = {line.strip(" │╭╰").split("  ")[0]: line for line in screen_text(app).split("\n")}
        assert "32.0 GiB" in rows["mem_total_bytes"]
        assert "–" in rows["driver"]
        assert " no" in rows["smt"]
        assert "num_workers 0" in screen_text(app) or "loader.num_workers" in screen_text(app)
