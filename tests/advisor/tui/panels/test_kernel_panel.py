"""Deep windows on the screen of the machine, at every size."""

from __future__ import annotations

from dataclasses import replace

import pytest

import screen_reports as samples
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow, KernelRow, deep_facts
from rn50_advisor.advisor.model.metrics import ProbeGap
from screen_overflow import overflows
from tui_doubles import SIZES, Reports, screen_text, settle, shown

WINDOW = DeepWindow(
    rank=0,
    device="cuda",
    steps=2,
    step_s=0.05,
    first_step=10,
    hardware="NVIDIA H200",
    classes={"conv": 0.03, "norm": 0.01},
    busy_s=0.04,
    tensor_core_share=0.9,
    idle={"launch": 0.008, "input": 0.002},
    rows=(KernelRow("sm80_xmma_" + "x" * 150, "conv", 0.02, 40.0, True),),
)


@pytest.mark.parametrize("size", SIZES)
async def test_a_window_fits_every_size(size) -> None:
    report = replace(samples.input_bound(), facts=deep_facts((WINDOW,)))
    async with shown(Reports(samples.round_trip(report)), size) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        assert overflows(app) == [] and "cannot be shown" not in screen_text(app)


async def test_a_large_screen_shows_classes_and_idle_time() -> None:
    report = replace(samples.input_bound(), facts=deep_facts((WINDOW,)))
    async with shown(Reports(report), (120, 60)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        text = screen_text(app)
        assert "rank 0 on NVIDIA H200, steps 10–11" in text and "convolutions" in text and "75 %" in text
        assert "8.00 ms waiting for launches" in text


async def test_without_one_it_says_how_to_ask_and_why_there_is_none() -> None:
    gap = ProbeGap("kernel.window", "rank:0", "the job replays CUDA graphs", "")
    report = replace(samples.input_bound(), gaps=(gap,))
    async with shown(Reports(report), (120, 60)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        text = screen_text(app)
        assert "--deep" in text and "the job replays CUDA graphs" in text
