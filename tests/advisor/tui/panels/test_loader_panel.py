"""The screen shows the diff of a fix and the data loaders at every size, within their panels."""

from __future__ import annotations

from dataclasses import replace

import pytest

import screen_reports as samples
from rn50_advisor.advisor.model.report import Report
from screen_overflow import overflows
from tui_doubles import SIZES, Reports, screen_text, settle, shown

DIFF = (
    "--- a/samples/train.py\n+++ b/samples/train.py\n@@ -88,4 +88,5 @@\n     loader = DataLoader(\n         data,\n"
    f"-        num_workers=0,\n+        num_workers=6,{'  # ' + 'as the advisor said ' * 12}\n"
    "+        persistent_workers=True,\n     )\n"
)


def report() -> Report:
    made = samples.input_bound()
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
