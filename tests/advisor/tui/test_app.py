"""Every report at every size: values where they belong, nothing beyond the edge, nothing made up."""

from __future__ import annotations

import gc
from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.tui.app import keep_from_collections
from rn50_advisor.advisor.tui.panels.banner import Banner
from rn50_advisor.advisor.tui.panels.tab_bar import VIEWS
from screen_overflow import overflows
from tui_doubles import SIZES, Lines, Reports, screen_text, settle, shown


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", sorted(samples.ALL.keys() - {"hostile"}))
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
    async with shown(Reports(samples.running()), size) as (app, _):
        text = screen_text(app)
        for part in (
            "▲ BOTTLENECK",
            "DAT003",
            "WHY  70 % of the steady step, on the critical path",
            "FIX  samples/train.py:142  load in worker processes: num_workers=6",
            "GAIN about 2.5× faster (2.1–2.9×)",
            "running 4:12",
            "587 ms median",
            "702 ms p95",
            "1.70 steps/s",
            "critical I 70% ╱",
            "rank 1   I 72% ╱",
            "preprocessing",
            "148–161",
            "◀ bottleneck",
            "◁ caps the gain",
            "not measured: no worker ran",
        ):
            assert part in text
        smallest = next(line for line in text.split("\n") if "◀ bottleneck" in line)
        assert "preprocessing" in smallest
        assert "154" in smallest


async def test_a_wide_screen_shows_findings_with_evidence_beside_the_overview():
    async with shown(Reports(samples.running()), (200, 60)) as (app, _):
        text = screen_text(app)
        for part in (
            "Findings · 3",
            "COM002",
            "What to change",
            "samples/train.py:142",
            "threshold",
            "Host · node-a",
        ):
            assert part in text


async def test_before_any_report_the_screen_says_that_it_reads():
    async with shown(Reports(), (80, 24)) as (app, _):
        assert "… reading" in screen_text(app)


async def test_a_new_size_lays_the_screen_out_anew():
    async with shown(Reports(samples.running()), (80, 24)) as (app, pilot):
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


async def test_without_colours_letters_and_words_still_show_everything(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(Reports(samples.running()), (100, 30)) as (app, _):
        text = screen_text(app)
        assert "▲ BOTTLENECK" in text
        assert "I 70% ╱" in text
        assert app.query_one(Banner).region.height == 5


@pytest.mark.parametrize("size", [(80, 24), (200, 60)])
async def test_names_that_look_like_markup_or_escapes_are_only_text(size):
    evil = "[/bold] [red]x[/] [@click=app.quit]q[/] \x1b[2J\n日本語"
    base = samples.running()
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


def test_what_was_alive_at_the_first_report_is_hidden_from_the_garbage_collector() -> None:
    before = gc.get_freeze_count()
    try:
        keep_from_collections()
        assert gc.get_freeze_count() > before + 1000
    finally:
        gc.unfreeze()
