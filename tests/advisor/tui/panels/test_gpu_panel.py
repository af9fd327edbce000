"""The GPU panel: bars, links, parts at work, trouble on a line of its own, and deep windows, at every width."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.findings import Affected
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow, KernelRow, deep_facts
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.report import GpuProcessRow, GpuStrip
from rn50_advisor.advisor.tui.panels.gpu_panel import GpuProcessesPanel, GpusPanel, alarming
from rn50_advisor.advisor.tui.panels.now_panel import gpu_cell
from screen_overflow import overflows
from tui_doubles import SIZES, Reports, screen_text, settle, shown


def drawn(width: int, **given: object) -> list[str]:
    gpus = (samples.gpu(0), replace(samples.gpu(1), **given))
    report = replace(samples.healthy(), gpus=gpus)
    return [line.plain for line in GpusPanel().draw(report, width)]


@pytest.mark.parametrize("width", [40, 60, 80, 100, 120, 140, 200])
def test_no_line_is_wider_than_the_panel(width):
    counters = {"pcie_gen": 4.0, "pcie_width": 16.0, "sm_active_pct": 82.0, "tensor_active_pct": 34.0}
    lines = drawn(width, trouble="throttled 60 %", ranks="0, 1, 2, 3", **counters)
    assert all(len(line) <= max(width, 52) for line in lines)


def test_trouble_is_said_below_the_bars_with_its_rank():
    lines = drawn(80, trouble="throttled 60 %", ranks="1")
    assert len(lines) == 3 and lines[2].strip() == "▲ GPU 1 (rank 1): throttled 60 %"
    assert len(drawn(80)) == 2


def hot():
    """GPU 1 of eight is throttled by its heat."""
    made = samples.healthy()
    finding = replace(samples.LOADER, rule="GPU001", title="GPU 1 is throttled", scope=Affected(gpus=(1,)), saving=None)
    gpus = tuple(replace(gpu, temp_c=91.0, throttled_pct=60.0) if gpu.index == 1 else gpu for gpu in made.gpus)
    verdict = replace(samples.bottleneck().verdict, rule="GPU001", title=finding.title)
    return replace(made, gpus=gpus, findings=(finding,), verdict=verdict)


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (160, 45)])
async def test_a_gpu_that_the_verdict_is_about_is_on_the_overview_at_every_size(size: tuple[int, int]) -> None:
    async with shown(Reports(hot()), size) as (app, _):
        rows = screen_text(app).split("\n")
        assert any("GPUs of the findings" in row for row in rows) and any(
            " 1▲" in row and "91 °C" in row for row in rows
        )
        assert overflows(app) == []
    async with shown(Reports(samples.healthy()), size) as (app, _):
        assert "GPUs of the findings" not in screen_text(app)


def test_the_row_of_such_a_gpu_is_marked_and_coloured() -> None:
    assert [gpu.index for gpu in alarming(hot())] == [1] and alarming(samples.healthy()) == []
    panel = GpusPanel()
    panel.grouped = False
    rows = panel.draw(hot(), 100)
    assert ["▲" in row.plain for row in rows] == [False, True, *[False] * 6]
    assert [any("$text-warning" in str(span.style) for span in row.spans) for row in rows] == [
        False,
        True,
        *[False] * 6,
    ]


def test_link_and_parts_at_work_where_there_is_room():
    counters = {"pcie_gen": 5.0, "pcie_width": 16.0, "sm_active_pct": 82.0, "tensor_active_pct": 34.0}
    wide = drawn(150, **counters)
    assert "g5 x16" in wide[1] and "SM" in wide[1] and "34 %" in wide[1].replace("34%", "34 %")
    assert "SM" not in drawn(120, **counters)[1] and "g5 x16" not in drawn(100, **counters)[1]


def test_what_was_not_read_is_a_dash():
    report = replace(samples.healthy(), gpus=(GpuStrip(0, ""),))
    (line,) = GpusPanel().draw(report, 130)
    assert "–" in line.plain or "—" in line.plain


def test_a_gpu_in_trouble_is_marked_on_the_first_view():
    sound, hot = (gpu_cell(replace(samples.gpu(3), trouble=words), 42) for words in ("", "throttled 60 %"))
    assert sound.plain.startswith("GPU 3") and hot.plain.startswith("▲ 3")
    assert len(hot.plain) == len(sound.plain)


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
    report = replace(samples.running(), facts=deep_facts((WINDOW,)))
    async with shown(Reports(samples.round_trip(report)), size) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        assert overflows(app) == [] and "cannot be shown" not in screen_text(app)


async def test_a_large_screen_shows_classes_and_idle_time() -> None:
    report = replace(samples.running(), facts=deep_facts((WINDOW,)))
    async with shown(Reports(report), (120, 60)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        text = screen_text(app)
        assert "rank 0 on NVIDIA H200, steps 10–11" in text and "convolutions" in text and "75 %" in text
        assert "8.00 ms waiting for launches" in text


@pytest.mark.parametrize(
    ("gaps", "said", "unsaid"),
    [
        (
            (ProbeGap("kernel.window", "rank:0", "the job replays CUDA graphs", ""),),
            "the job replays CUDA graphs",
            "--deep",
        ),
        ((), "not profiled: run with --deep", "replays"),
    ],
)
async def test_without_one_it_says_why_or_how_to_ask(gaps: tuple[ProbeGap, ...], said: str, unsaid: str) -> None:
    report = replace(samples.running(), gaps=gaps)
    async with shown(Reports(report), (120, 60)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        text = screen_text(app)
        assert said in text and unsaid not in text


async def test_gpus_of_several_hosts_stand_under_their_host() -> None:
    gpus = tuple(
        GpuStrip(n, "NVIDIA H100", util_pct=50.0, place=f"node{n // 4}, {n % 4}", host=f"node{n // 4}")
        for n in range(8)
    )
    async with shown(Reports(replace(samples.on_two_hosts(), gpus=gpus)), (80, 30)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        lines = [line.strip() for line in screen_text(app).split("\n")]
    first, second = lines.index("node0"), lines.index("node1")
    assert second - first == 5 and lines[first + 1].startswith("0 ") and lines[second + 1].startswith("4 ")


def test_alike_gpus_share_a_row_below_the_one_that_differs() -> None:
    panel = GpusPanel()
    rows = [line.plain for line in panel.draw(hot(), 100)]
    assert [row[:3] for row in rows] == [" 1▲", "7× "]
    assert "7 alike in one row (a: all)" in panel.titled(hot())
    panel.grouped = False
    assert len(panel.draw(hot(), 100)) == 8
    assert "alike" not in panel.titled(hot())


@pytest.mark.parametrize("size", SIZES)
async def test_processes_of_others_on_a_gpu_stand_first_and_are_marked_by_a_word(size) -> None:
    own = GpuProcessRow(4711, "ann", "python", 20 * 2**30, own=True)
    other = GpuProcessRow(77, "uid 4321", "ollama", 2**31)
    healthy = samples.healthy()
    listed = replace(healthy, gpus=(replace(healthy.gpus[0], processes=(own, other)), *healthy.gpus[1:]))
    async with shown(Reports(listed), size) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        panel = app.query_one("#gpu-processes", GpuProcessesPanel)
        assert panel.display and not overflows(app)
        lines = [line.plain.split() for line in panel.draw(listed, panel.content_size.width)]
        assert lines[1:] == [
            ["▲", "other", "0", "77", "uid", "4321", "2.00", "GiB", "ollama"],
            ["this", "job", "0", "4711", "ann", "20.0", "GiB", "python"],
        ]


async def test_without_a_list_of_processes_there_is_no_table_of_them() -> None:
    async with shown(Reports(samples.healthy()), (120, 36)) as (app, pilot):
        await pilot.press("4")
        await settle(app, pilot)
        assert not app.query_one("#gpu-processes").display


@pytest.mark.parametrize(("size", "apart"), [((80, 24), True), ((120, 36), True), ((200, 56), False)])
async def test_gpus_of_findings_stand_apart_only_where_no_other_panel_shows_them(
    size: tuple[int, int], apart: bool
) -> None:
    made = samples.healthy()
    gpus = (replace(made.gpus[0], trouble="throttled 60 %"), *made.gpus[1:])
    async with shown(Reports(replace(made, gpus=gpus)), size) as (app, _):
        text = screen_text(app)
        assert ("GPUs of the findings" in text) == apart
        assert text.count(": throttled 60 %") == 1
    async with shown(Reports(made), size) as (app, _):
        assert "GPUs of the findings" not in screen_text(app)
