"""The stages' rates, the forecast over workers, and the data loaders, at every size."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.panels.capacity_panel import CapacitiesPanel, LoadersPanel
from screen_overflow import overflows
from tui_doubles import SIZES, Reports, screen_text, settle, shown

DIFF = (
    "--- a/samples/train.py\n+++ b/samples/train.py\n@@ -88,4 +88,5 @@\n     loader = DataLoader(\n         data,\n"
    f"-        num_workers=0,\n+        num_workers=6,{'  # ' + 'as the advisor said ' * 12}\n"
    "+        persistent_workers=True,\n     )\n"
)


def report() -> Report:
    made = samples.running()
    first, *others = made.findings
    loader = {
        "file": "/home/somebody/projects/images/resnet50/samples/train.py",
        "line": 88,
        "training": True,
        "num_workers": 0,
        "batch_size": 64,
        "collate": "default_collate",
        "dataset": {"class": "ImageFolder", "length": 1_281_167, "transforms": ["RandomResizedCrop", "ToTensor"]},
    }
    fixes = (replace(first.fixes[0], diff=DIFF), *first.fixes[1:])
    facts = {"0": {"loaders": [loader]}, "1": {"loaders": [loader]}}
    return replace(made, findings=(replace(first, fixes=fixes), *others), facts=facts)


@pytest.mark.parametrize("size", SIZES)
async def test_diff_and_loaders_fit_every_size(size) -> None:
    async with shown(Reports(samples.round_trip(report())), size) as (app, pilot):
        for key in ("2", "5"):
            await pilot.press(key)
            await settle(app, pilot)
            assert overflows(app) == [] and "cannot be shown" not in screen_text(app)


async def test_a_large_screen_shows_them_whole() -> None:
    async with shown(Reports(report()), (160, 60)) as (app, pilot):
        await pilot.press("2")
        await settle(app, pilot)
        text = screen_text(app)
        assert "-        num_workers=0," in text and "+        persistent_workers=True," in text
        await pilot.press("5")
        await settle(app, pilot)
        text = screen_text(app)
        assert "samples/train.py:88  trains" in text and "ImageFolder, 1,281,167 samples" in text


async def test_the_forecast_over_workers_is_drawn_on_large_screens_and_a_sentence_elsewhere():
    async with shown(Reports(samples.running()), (140, 50)) as (app, _):
        rows = screen_text(app).split("\n")
        assert any("3 workers" in row and "━" in row and "◁" in row and "330–390" in row for row in rows)
        assert any("(◁ point of diminishing returns)" in row for row in rows)
        assert any("0 workers" in row and "109" in row and "◀ measured" in row for row in rows)
    async with shown(Reports(samples.running()), (140, 33)) as (app, _):
        assert "workers: 0 → 109 (measured), 1 → 140–160" in " ".join(screen_text(app).split())


def rows(made: Report, width: int = 120, lines: int = 50) -> list[str]:
    panel = CapacitiesPanel()
    panel.terminal_lines = lines
    return [content.plain for content in panel.draw(made, width)]


def test_the_slowest_stage_and_its_cap_are_marked_and_the_unmeasured_say_why() -> None:
    shown_rows = rows(replace(samples.running(), worker_curve=None))
    marked = {
        row.split("  ")[0]: mark for row in shown_rows for mark in ("◀ bottleneck", "◁ caps the gain") if mark in row
    }
    assert marked == {"preprocessing": "◀ bottleneck", "compute": "◁ caps the gain"}
    assert shown_rows[0].startswith("achieved") and "109" in shown_rows[0]
    assert "worker-to-loop transfer not measured: no worker ran, so nothing was transferred" in [
        row.rstrip() for row in shown_rows
    ]


def test_a_verdict_about_no_stage_marks_none_and_a_healthy_job_has_a_slowest_stage() -> None:
    made = replace(samples.running(), worker_curve=None)
    thread = replace(made, verdict=replace(made.verdict, rule="LOP006"))
    assert not any(mark in row for row in rows(thread) for mark in "◀◁○")
    assert [row.split()[0] for row in rows(samples.healthy()) if "○ slowest stage" in row] == ["compute"]


def test_stages_of_one_process_have_a_row_together() -> None:
    (together,) = [row for row in rows(samples.running()) if row.startswith("one after the other")]
    assert "106" in together
    assert any(row.startswith("in turn") for row in rows(samples.running(), 60)), "where it is narrow"


@pytest.mark.parametrize(("steps", "said"), [(0, "not measured yet"), (5, "not measured")])
def test_without_stages_it_says_so(steps: int, said: str) -> None:
    made = samples.running()
    assert rows(replace(made, capacities=(), step_time=replace(made.step_time, steps=steps))) == [said]


@pytest.mark.parametrize("width", [50, 68, 100, 160])
def test_no_stage_is_wider_than_the_panel(width: int) -> None:
    for made in (samples.running(), samples.healthy(), samples.empty()):
        assert max(len(row.rstrip()) for row in rows(made, width)) <= width


def test_a_job_without_loaders_says_so_and_others_have_their_places() -> None:
    assert [content.plain for content in LoadersPanel().draw(samples.running(), 80)] == ["no DataLoader was seen"]
    first = LoadersPanel().draw(report(), 120)[0].plain
    assert first.endswith("samples/train.py:88  trains")
