"""What `try` measured, as a view: every change with its prediction, the selected one in full, at the words of the text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import report_samples as samples
import trial_samples
from rn50_advisor.advisor.model.trials import Tried
from rn50_advisor.advisor.model.wording import trial_words
from rn50_advisor.advisor.report.trials import trial_pages
from rn50_advisor.advisor.tui.panels.trial_panel import TrialTable, rows_of, trial_lines, untried_lines
from screen_overflow import overflows
from tui_doubles import Reports, screen_text, settle, shown, until

SIZES = ((80, 24), (120, 36))
RUN = Path("runs/20260101-120000-slow")


def tried_report(tried: Tried | None = None):
    return replace(samples.bottleneck(), tried=tried or trial_samples.several())


@pytest.mark.parametrize("colour", [True, False])
@pytest.mark.parametrize("size", SIZES)
async def test_a_row_for_each_trial_and_the_selected_change_in_full(size, colour, monkeypatch):
    if not colour:
        monkeypatch.setenv("NO_COLOR", "1")
    async with shown(Reports(tried_report()), size) as (app, pilot):
        await pilot.press("7")
        await settle(app, pilot)
        text = screen_text(app)
        for part in (
            "7 Trials",
            "Trials · 6 changes tried, 2 not",
            "▲ faster: 1.52× as fast (1.49–1.56×) with DataLoader.num_workers=2 (DAT003)",
            "40.1 samples/s as it is, about 61.1 with DAT003",
            "1.52× (1.49–1.56×)  ▲ faster",
            "? undecided" if size[1] > 24 else "= no gain",
            "Data loading: batches made in the training process",
            "DataLoader(..., num_workers=2)",
        ):
            assert part in text
        assert overflows(app) == []
        assert ("1.45× (1.3–1.6×)   1.52×" in text) == (size[0] >= 104)


@pytest.mark.parametrize("size", SIZES)
async def test_the_cursor_chooses_and_the_last_row_is_all_at_once(size):
    async with shown(Reports(tried_report()), size) as (app, pilot):
        await pilot.press("7", "down", "down")
        await settle(app, pilot)
        assert "check the accuracy: the job computes other numbers with it" in screen_text(app)
        await pilot.press("end")
        await settle(app, pilot)
        text = screen_text(app)
        assert "all 3 at once" in text and "all 3 at once: 1.71× (1.65–1.78×)" in text
        await pilot.press("up")
        await settle(app, pilot)
        text = screen_text(app)
        assert "– not tried" in text and "it changes the batch, and with it the training" in text


@pytest.mark.parametrize("size", SIZES)
async def test_without_trials_it_says_what_to_type_and_has_no_tab(size):
    async with shown(Reports(samples.bottleneck()), size, run=RUN) as (app, pilot):
        assert "Trials" not in screen_text(app)
        await pilot.press("7")
        await settle(app, pilot)
        text = " ".join(screen_text(app).split())
        assert "7 Trials" in text and "No fix of this run has been tried" in text
        assert f"rn50-advisor try {RUN} -- torchrun --nproc_per_node=2" in text
        assert "No file is edited" in text
        assert app.focused is None
        await pilot.press("1")
        await settle(app, pilot)
        assert "Trials" not in screen_text(app)


async def test_trials_that_come_while_the_screen_is_open_are_shown():
    source = Reports(samples.bottleneck())
    async with shown(source, (100, 30)) as (app, pilot):
        await pilot.press("7")
        source.steps.append(tried_report())
        await until(pilot, lambda: "1.52× (1.49–1.56×)  ▲ faster" in screen_text(app))


async def test_y_copies_the_change_under_the_cursor():
    async with shown(Reports(tried_report()), (100, 30)) as (app, pilot):
        await pilot.press("7", "y")
        assert app.clipboard == trial_samples.DIFF
        await pilot.press("down", "y")
        assert app.clipboard == "OMP_NUM_THREADS=2"
        await pilot.press("end", "y")
        await until(pilot, lambda: "Choose one change" in screen_text(app))
        await pilot.press("1", "y")
        assert "num_workers=6" in app.clipboard, "elsewhere it is the fix of the verdict"


@pytest.mark.parametrize(
    "made", [trial_samples.several, trial_samples.without_gain, trial_samples.undecided, trial_samples.nothing_tried]
)
async def test_the_screen_and_the_text_use_the_same_words(made):
    tried = made()
    text = " ".join(trial_pages.render(tried, "text").split())
    async with shown(Reports(tried_report(tried)), (200, 60)) as (app, pilot):
        await pilot.press("7")
        await settle(app, pilot)
        seen = " ".join(screen_text(app).split())
    for trial in tried.trials:
        for words in (trial_words.measured(trial.measured), trial_words.outcome(trial)):
            assert words in seen
            assert words in text or trial.outcome == "refused"
    assert trial_words.headline(tried) in seen and trial_words.headline(tried) in text


def test_what_was_not_made_comes_after_what_was_and_all_at_once_last():
    tried = trial_samples.several()
    mixed = replace(tried, trials=tuple(reversed(tried.trials)))
    rows = rows_of(mixed)
    assert [trial.outcome == "refused" for trial in rows[:-1]] == [False] * 6 + [True] * 2 and rows[-1] is None
    assert rows_of(trial_samples.undecided())[-1] is not None and rows_of(None) == []


def test_notes_of_all_trials_stand_below_each_change():
    text = "\n".join(line.plain for line in trial_lines(trial_samples.several(), trial_samples.WORKERS, 90))
    assert all(note in text for note in trial_samples.NOTES)
    assert "torchrun --nproc_per_node=2 train.py" in text and "6m 52s" in text


@pytest.mark.parametrize(
    ("report", "said"),
    [
        (samples.bottleneck(), "runs/20260101-120000-slow -- torchrun"),
        (samples.running(), "Once the job has ended"),
        (
            replace(samples.bottleneck(), job=replace(samples.bottleneck().job, argv=("t.py", "--key=***"))),
            "-- COMMAND",
        ),
        (samples.empty(), "-- COMMAND"),
    ],
)
def test_what_to_type_fits_the_run(report, said):
    assert said in " ".join(line.plain.strip() for line in untried_lines(report, RUN, 76))


def test_without_a_known_place_the_run_is_left_to_the_reader():
    assert "try RUN --" in " ".join(line.plain for line in untried_lines(samples.bottleneck(), None, 76))


@pytest.mark.parametrize("size", SIZES)
async def test_names_of_a_strangers_trials_act_on_nothing(size):
    evil = "[/bold] [red]x[/] [@click=app.quit]q[/] \x1b[2J\n日本語" * 3
    trial = replace(trial_samples.WORKERS, rule=evil, title=evil, knob=evil, reason=evil, change=evil, diff=evil)
    tried = replace(trial_samples.several(), trials=(trial, trial), argv=(evil,), notes=(evil,))
    async with shown(Reports(tried_report(tried)), size, run=Path(evil)) as (app, pilot):
        for keys in (("7",), ("end",)):
            await pilot.press(*keys)
            await settle(app, pilot)
            text = screen_text(app)
            assert overflows(app) == [] and "cannot be shown" not in text and "\x1b" not in text
            assert "[red]x" in text


async def test_fewer_trials_than_before_move_the_cursor_back():
    source = Reports(tried_report())
    async with shown(source, (100, 30)) as (app, pilot):
        await pilot.press("7", "end")
        source.steps.append(tried_report(trial_samples.undecided()))
        await until(pilot, lambda: "1 of 2 undecided" in screen_text(app))
        await settle(app, pilot)
        assert app.query_one(TrialTable).cursor_row == 1
        assert "Exposed gradient exchange" in screen_text(app)
