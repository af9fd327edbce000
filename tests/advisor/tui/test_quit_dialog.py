"""Leaving the screen: over a running job only after a question, and a job is never ended more harshly than was asked."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.errors import CommandNotFound
from rn50_advisor.advisor.tui.output_log import OutputLog
from rn50_advisor.advisor.tui.quit_dialog import QuitDialog
from tui_doubles import Child, Lines, Reports, screen_text, settle, shown, until


@pytest.fixture
def job():
    child = Child()
    yield child
    child.close()


@pytest.fixture
def stubborn():
    child = Child("SIGINT", "SIGTERM")
    yield child
    child.close()


async def test_without_a_job_q_quits_at_once():
    async with shown(Reports(samples.healthy())) as (app, pilot):
        await pilot.press("q")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == "quit"


async def test_without_a_job_ctrl_c_quits_too():
    async with shown(Reports(samples.healthy())) as (app, pilot):
        await pilot.press("ctrl+c")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == "quit"


@pytest.mark.parametrize("key", ["q", "ctrl+q"])
async def test_over_a_running_job_q_asks_and_escape_goes_back(job, key):
    async with shown(Reports(samples.running()), (80, 24), controls=job) as (app, pilot):
        await pilot.press(key)
        await settle(app, pilot)
        assert isinstance(app.screen, QuitDialog)
        for words in ("The job is still running", "Stop the job", "Leave it running", "Back"):
            assert words in screen_text(app)
        await pilot.press("escape")
        await settle(app, pilot)
        assert not isinstance(app.screen, QuitDialog)
        assert job.running()
        assert job.sent == []
        assert app.return_value is None


async def test_enter_by_habit_ends_nothing(job):
    async with shown(Reports(samples.running()), (80, 24), controls=job) as (app, pilot):
        await pilot.press("q", "enter")
        await settle(app, pilot)
        assert not isinstance(app.screen, QuitDialog)
        assert job.sent == []


async def test_detaching_leaves_the_job_running(job):
    async with shown(Reports(samples.running()), controls=job) as (app, pilot):
        await pilot.press("q", "d")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == "detached"
    assert job.running()
    assert job.sent == []


async def test_stopping_interrupts_and_leaves_when_the_job_has_ended(job):
    async with shown(Reports(samples.running()), controls=job) as (app, pilot):
        await pilot.press("q", "s")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == "stopped"
    assert job.sent == ["SIGINT"]
    assert not job.running()


async def test_a_job_that_does_not_stop_is_terminated_and_killed_only_when_asked(stubborn):
    async with shown(Reports(samples.running()), (100, 30), controls=stubborn) as (app, pilot):
        await pilot.press("q")
        await settle(app, pilot)
        await pilot.press("t", "k")  # not offered yet
        assert stubborn.sent == []
        await pilot.press("s")
        await until(pilot, lambda: "Interrupted (SIGINT)" in screen_text(app))
        assert "Kill" not in screen_text(app)
        await pilot.press("t")
        await until(pilot, lambda: "Terminated (SIGTERM)" in screen_text(app))
        assert stubborn.running()
        await pilot.press("k")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == "stopped"
    assert stubborn.sent == ["SIGINT", "SIGTERM", "SIGKILL"]


async def test_one_can_still_detach_from_a_job_that_does_not_stop(stubborn):
    async with shown(Reports(samples.running()), controls=stubborn) as (app, pilot):
        await pilot.press("q", "s")
        await until(pilot, lambda: "Interrupted" in screen_text(app))
        await pilot.press("d")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == "detached"
    assert stubborn.running()


async def test_ctrl_c_reaches_the_job_each_time_and_the_screen_stays(stubborn):
    async with shown(Reports(samples.running()), (100, 30), controls=stubborn) as (app, pilot):
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "interrupt sent" in screen_text(app))
        await pilot.press("ctrl+c")
        await until(pilot, lambda: "interrupt sent × 2" in screen_text(app))
        assert app.return_value is None
        await pilot.press("question_mark", "ctrl+c")
        await until(pilot, lambda: len(stubborn.sent) == 3)
        assert stubborn.sent == ["SIGINT"] * 3


async def test_when_the_job_ends_the_final_verdict_stays_and_q_leaves(job):
    source = Reports(samples.running())
    async with shown(source, (100, 30), controls=job) as (app, pilot):
        job.process.communicate()
        await until(pilot, lambda: "■ ended" in screen_text(app))
        final = replace(samples.running(), job=replace(samples.running().job, running=False, exit_code=0))
        source.steps.append(final)
        await until(pilot, lambda: "✔ ended, exit code 0" in screen_text(app))
        assert "▲ BOTTLENECK" in screen_text(app)
        await pilot.press("ctrl+c")
        await settle(app, pilot)
        assert app.return_value is None
        await pilot.press("q")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == "ended"
    assert job.sent == []


async def test_the_question_goes_away_when_the_job_ends_meanwhile(job):
    async with shown(Reports(samples.running()), controls=job) as (app, pilot):
        await pilot.press("q")
        await settle(app, pilot)
        job.process.communicate()
        await until(pilot, lambda: not isinstance(app.screen, QuitDialog))
        assert app.return_value is None


async def test_a_job_that_could_not_be_started_says_why_and_the_screen_stays():
    class NoJob:
        def running(self):
            raise CommandNotFound("no such command: torchrnu", "did you mean torchrun?")

        def interrupt(self):
            raise ProcessLookupError(3, "No such process")

        terminate = kill = interrupt

    async with shown(Reports(), (100, 30), controls=NoJob()) as (app, pilot):
        await until(pilot, lambda: "no such command: torchrnu → did you mean torchrun?" in screen_text(app))
        await pilot.press("ctrl+c")
        await settle(app, pilot)
        assert app.return_value is None
        await pilot.press("q")
        await until(pilot, lambda: app.return_value is not None)
    assert app.return_value == "ended"


async def test_the_job_learns_how_wide_its_output_is(job):
    sizes = []
    job.resize = lambda rows, columns: sizes.append((rows, columns))
    async with shown(Reports(samples.running()), (80, 24), controls=job, output=Lines("x")) as (app, pilot):
        assert sizes[-1][1] == 79
        await pilot.resize_terminal(140, 60)
        await settle(app, pilot)
        await pilot.press("o", "o")
        await settle(app, pilot)
        assert app.query_one(OutputLog).scrollable_content_region.width == sizes[-1][1]
