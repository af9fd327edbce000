"""The view over time: what was lost, phases, ranks and GPUs; who differs has an own row, on top."""

from __future__ import annotations

from dataclasses import replace

import pytest
from textual.content import Content

import report_samples as samples
from history_samples import SLICES, eight_gpus, level, with_history
from rn50_advisor.advisor.model.history import GpuHistory
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.tui.panels.history_panel import GpuHistoryPanel, PhasesPanel, RankHistoryPanel, TimeLostPanel
from rn50_advisor.advisor.tui.panels.panel import Panel
from tui_doubles import Reports, screen_text, settle, shown

LATE = {41: level(0.0, (SLICES // 2, 0.05))}


def drawn(panel: Panel, report: Report, width: int) -> list[str]:
    return [(made if isinstance(made, Content) else made()).plain for made in panel.draw(report, width)]


def rank_lines(report: Report, *, lines: int = 40, grouped: bool = True) -> list[str]:
    panel = RankHistoryPanel()
    panel.terminal_lines, panel.grouped = lines, grouped
    return drawn(panel, report, 100)


def test_the_time_lost_is_the_likely_saving_of_all_steps_so_far() -> None:
    (text,) = drawn(TimeLostPanel(), samples.running(), 100)
    assert text == "time lost so far: 2m 30s of 4m 12s to DAT003, by its predicted gain"
    done = replace(samples.running(), job=replace(samples.running().job, running=False))
    assert drawn(TimeLostPanel(), done, 100)[0].startswith("time lost: 2m 30s")


def test_without_a_predicted_gain_nothing_is_claimed_as_lost() -> None:
    for report, words in (
        (samples.healthy(), "none that a fix would save"),
        (samples.young(), "not known"),
        (samples.hang(), "RUN001"),
    ):
        text = drawn(TimeLostPanel(), report, 100)[0]
        assert words in text and " of " not in text


def test_ranks_that_are_alike_share_a_row_and_the_late_one_comes_first() -> None:
    texts = rank_lines(with_history(samples.many_ranks(), slow=LATE))
    late = texts[texts.index(next(text for text in texts if text.startswith("lateness"))) :]
    assert len(texts) == 6
    assert late[1].startswith("▲rank 41") and "··" in late[1] and "██" in late[1], "late in the second half"
    assert late[2].startswith(" 63 ranks") and "█" not in late[2]


def test_each_rank_has_a_row_when_asked() -> None:
    texts = rank_lines(with_history(samples.many_ranks(), slow=LATE), grouped=False)
    assert len(texts) == 2 * 65
    assert texts[1].startswith("▲rank 41") and texts[2].startswith(" rank 0 ")


def test_a_row_names_its_ranks_where_they_fit() -> None:
    assert rank_lines(with_history(samples.healthy()))[1].startswith(" ranks 0–7 ")


def test_a_low_terminal_shows_one_quantity_and_the_other_on_request() -> None:
    panel = RankHistoryPanel()
    panel.terminal_lines = 24
    report = with_history(samples.many_ranks(), slow=LATE)
    assert drawn(panel, report, 80)[0][:9] == "step time"
    assert panel.next_heat() == "lateness"
    assert drawn(panel, report, 80)[0].startswith("lateness")


def test_one_rank_has_no_lateness_and_untimed_waits_say_so() -> None:
    report = with_history(samples.running())
    assert report.history is not None
    alone = replace(report, history=replace(report.history, late_s={}, steps={0: (1.0,) * SLICES}))
    assert "one rank waits for no other" in rank_lines(alone)[-1]
    untimed = replace(report, history=replace(report.history, late_s={}))
    assert "not measured" in rank_lines(untimed)[-1]


def gpu_lines(report: Report, grouped: bool = True) -> list[str]:
    panel = GpuHistoryPanel()
    panel.terminal_lines, panel.grouped = 40, grouped
    return [text.rstrip() for text in drawn(panel, report, 100)]


def test_gpus_that_are_alike_share_their_curves_and_the_hot_one_comes_first() -> None:
    texts = gpu_lines(with_history(samples.healthy(), gpus=eight_gpus(3)))
    assert texts[0] == "▲GPU 3"
    assert texts[5] == " GPUs 0–2, 4–7  mean of 7"
    assert texts[2].endswith("900 MHz") and texts[7].endswith("1755 MHz")
    assert len(gpu_lines(with_history(samples.healthy(), gpus=eight_gpus(3)), grouped=False)) == 8 * 5


def test_readings_that_no_gpu_has_are_named_once() -> None:
    gpus = tuple(GpuHistory(i, util_pct=level(90.0)) for i in range(2))
    texts = gpu_lines(with_history(samples.healthy(), gpus=gpus))
    assert texts[-1] == "not measured: clock, temp, memory"
    assert gpu_lines(with_history(samples.running()))[0] == "not measured: no GPU seen"


def test_before_the_first_step_there_is_no_strip() -> None:
    for panel in (PhasesPanel(), RankHistoryPanel()):
        assert drawn(panel, samples.young(), 80) == ["no step has ended yet"]
        assert drawn(panel, samples.running(), 80) == ["not measured over time"], "it has steps, and no history"


@pytest.mark.parametrize("size", [(80, 24), (120, 36)])
async def test_keys_open_the_view_and_change_its_rows(size: tuple[int, int]) -> None:
    report = with_history(samples.many_ranks(), slow=LATE, gpus=eight_gpus(3))
    async with shown(Reports(report), size) as (app, pilot):
        await pilot.press("6")
        await settle(app, pilot)
        assert "Phases of the step over time · mean of 64 ranks" in screen_text(app)
        assert " 63 ranks  " in screen_text(app)
        await pilot.press("t")
        await settle(app, pilot)
        assert "lateness" in screen_text(app)
        await pilot.press("a")
        await settle(app, pilot)
        assert " 63 ranks  " not in screen_text(app) and "rank 0 " in screen_text(app)
        await pilot.press("a")
        await settle(app, pilot)
        assert " 63 ranks  " in screen_text(app)


async def test_without_colour_each_cell_has_the_letter_of_its_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    async with shown(Reports(with_history(samples.healthy())), (120, 36)) as (app, pilot):
        await pilot.press("6")
        await settle(app, pilot)
        assert "B" * 80 in screen_text(app) and "F" * 80 in screen_text(app)
