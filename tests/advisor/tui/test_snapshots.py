"""The main views as text, by state and size, beside what they were: RN50_SNAPSHOTS=write writes the files anew."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from rich.color import Color, ColorSystem
from rich.console import Console

import report_samples as samples
import trial_samples
from history_samples import SLICES, eight_gpus, level, with_history
from rn50_advisor.advisor.model.findings import Affected, Evidence, Finding, Fix, Saving
from rn50_advisor.advisor.model.report import Budget, Report, Verdict
from rn50_advisor.advisor.tui.app import AdvisorApp
from rn50_advisor.advisor.tui.panels.tab_bar import VIEWS
from tui_doubles import Lines, Reports, screen_lines, settle, shown

FOLDER = Path(__file__).with_name("snapshots")
SNAPSHOT_SIZES = ((80, 24), (120, 36), (200, 56))
KEYS = {view.id: view.key for view in VIEWS if view.id != "trials"}


def one_rank() -> Report:
    report = samples.running()
    budget = Budget(report.budget.critical, {0: report.budget.per_rank[0]})
    throughput = replace(report.throughput, world_size=1)
    return replace(
        report, ranks=report.ranks[:1], budget=budget, job=replace(report.job, ranks=1), throughput=throughput
    )


def hot_gpu() -> Report:
    report = samples.healthy()
    hot = replace(
        report.gpus[3], temp_c=91.0, sm_clock_mhz=900.0, throttled_pct=60.0, trouble="throttled 60 %", ranks="3"
    )
    title = "GPU 3 throttled: hardware thermal slowdown"
    told = Evidence("gpu.throttled_share", 0.6, "share", 0.02, "GPU 3 (rank 3) throttled for 60 % of the time")
    fix = Fix("cool GPU 3 (airflow, fans)", effort="outside the code")
    saving = Saving((0.02, 0.04), (1.1, 1.5), "", likely=1.3)
    about = Affected(ranks=(3,), gpus=(3,))
    finding = Finding("GPU001", title, "critical", 0.9, 0.03, about, (told,), (fix,), saving)
    gpus = (*report.gpus[:3], hot, *report.gpus[4:])
    found = replace(report, verdict=Verdict("bottleneck", "GPU001", title, ""), findings=(finding,), gpus=gpus)
    return with_history(found, slow={3: level(0.0, (SLICES // 2, 0.03))}, gpus=eight_gpus(3))


def live() -> Report:
    return with_history(samples.running(), slow={1: level(0.0, (SLICES // 3, 0.1), (SLICES // 2, 0.3))})


def many_ranks() -> Report:
    return with_history(samples.many_ranks(), slow={41: level(0.02, (SLICES // 4, 0.05))})


STATES = {
    "live": live,
    "bottleneck": samples.bottleneck,
    "healthy-8-ranks": samples.healthy,
    "inconclusive": samples.inconclusive,
    "early": samples.young,
    "hang": samples.hang,
    "dead": samples.dead_rank,
    "one-rank": one_rank,
    "64-ranks": many_ranks,
    "gpus": hot_gpu,
}

# Those that are also drawn in few colours.
SOME_VIEWS = {
    "bottleneck": ("overview",),
    "gpus": ("overview", "machine", "over-time"),
    "64-ranks": ("overview", "ranks", "over-time"),
}
# Letters of the 16 colours, bright ones in capitals; a dot is the terminal's own.
LETTERS = "krgybmcwKRGYBMCW"


@pytest.fixture(autouse=True)
def no_clock(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day in UTC, and no complaint about a report that is ten seconds old on a slow machine."""
    monkeypatch.setattr("rn50_advisor.advisor.tui.panels.banner._SILENT_S", float("inf"))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.setenv("COLORTERM", "truecolor")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize("state", STATES)
async def test_the_views_look_as_they_did(state: str) -> None:
    make = STATES[state]
    parts = []
    for width, height in SNAPSHOT_SIZES:
        async with shown(Reports(make()), (width, height), output=Lines("epoch 1", "step 10")) as (app, pilot):
            first = screen_lines(app)
            top = 4 if height < 28 else 5
            for view, key in KEYS.items():
                await pilot.press(key)
                await pilot.pause()
                lines = screen_lines(app)
                assert lines[:top] == first[:top], "the verdict, WHY, FIX and GAIN stand on every view"
                parts += [f"== {width}x{height} {view}", *lines[0 if view == "overview" else top :]]
    compare(state, parts)


@pytest.mark.parametrize("colours", ["", "-no-colour"])
async def test_the_trials_look_as_they_did(colours: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if colours:
        monkeypatch.setenv("NO_COLOR", "1")
    parts = []
    for width, height in SNAPSHOT_SIZES[:2]:
        for tried in (trial_samples.several(), None):
            report = replace(samples.bottleneck(), tried=tried)
            async with shown(Reports(report), (width, height), run=Path("runs/slow")) as (app, pilot):
                await pilot.press("7")
                await settle(app, pilot)
                parts += [f"== {width}x{height} {'trials' if tried else 'without'}", *screen_lines(app)]
                assert not colours or all(_grey(fore) and _grey(back) for _, fore, back in cells(app, None))
    compare(f"trials{colours}", parts)


def compare(name: str, parts: list[str]) -> None:
    text = "\n".join(parts) + "\n"
    file = FOLDER / f"{name}.txt"
    if os.environ.get("RN50_SNAPSHOTS") == "write":
        file.write_text(text, encoding="utf-8")
    assert text.splitlines() == file.read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("state", SOME_VIEWS)
async def test_the_views_look_as_they_did_without_colour(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    make = STATES[state]
    parts = []
    async with shown(Reports(make()), (120, 36)) as (app, pilot):
        for view in SOME_VIEWS[state]:
            await pilot.press(KEYS[view])
            await settle(app, pilot)
            parts += [f"== {view}", *screen_lines(app)]
            assert all(_grey(fore) and _grey(back) for _, fore, back in cells(app, None))
    compare(f"{state}-no-colour", parts)


@pytest.mark.parametrize("state", SOME_VIEWS)
async def test_the_views_look_as_they_did_in_16_colours(state: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each line has the letters of its cells' colours below it."""
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("COLORTERM")
    make = STATES[state]
    parts = []
    async with shown(Reports(make()), (120, 36)) as (app, pilot):
        for view in SOME_VIEWS[state]:
            await pilot.press(KEYS[view])
            await settle(app, pilot)
            parts.append(f"== {view}")
            found = cells(app, ColorSystem.STANDARD)
            assert not [text for text, fore, back in found if text.strip() and fore is not None and fore == back]
            for top in range(0, len(found), 120):
                row = found[top : top + 120]
                parts.append("".join(text for text, _, _ in row).rstrip())
                parts.append("".join(_letter(fore) if text.strip() else " " for text, fore, _ in row).rstrip())
    compare(f"{state}-16-colours", parts)


def cells(app: AdvisorApp, system: ColorSystem | None) -> list[tuple[str, Color | None, Color | None]]:
    """Text, foreground and background of each cell, in the colours of such a terminal; None: as the screen has them."""
    console = Console(width=app.size.width, height=app.size.height, file=io.StringIO(), force_terminal=True)
    found = []
    for segment in console.render(app.screen._compositor.render_update(full=True)):
        if segment.control or segment.text == "\n":
            continue
        style = segment.style
        colours = [style.color, style.bgcolor] if style else [None, None]
        if style and style.reverse:
            colours.reverse()
        if system is not None:
            colours = [colour.downgrade(system) if colour else None for colour in colours]
        found += [(text, *colours) for text in segment.text.replace("\n", "")]
    return found


def _letter(colour: Color | None) -> str:
    return "." if colour is None or colour.number is None else LETTERS[colour.number]


def _grey(colour: Color | None) -> bool:
    return colour is None or colour.triplet is None or len(set(colour.triplet)) == 1


def test_there_is_no_snapshot_of_a_state_that_is_gone_and_all_are_small() -> None:
    files = sorted(FOLDER.iterdir())
    few = [f"{state}-{colours}" for state in SOME_VIEWS for colours in ("no-colour", "16-colours")]
    assert sorted(file.stem for file in files) == sorted([*STATES, *few, "trials", "trials-no-colour"])
    assert sum(file.stat().st_size for file in files) < 1_100_000
