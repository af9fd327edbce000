"""The verdict at a glance, and what keeps the screen from showing the job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from rich.cells import cell_len

import report_samples as samples
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.report import Job, Report, StepTime
from rn50_advisor.advisor.tui.panels.banner import Banner, job_words
from rn50_advisor.advisor.tui.styles.drawing import line
from tui_doubles import Reports, screen_text, shown, until


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
        source.steps.append(samples.running())
        await until(pilot, lambda: "BOTTLENECK" in screen_text(app))
        assert not trouble.display


async def test_an_unexpected_error_of_the_source_is_a_line_too():
    async with shown(Reports(ZeroDivisionError("oh"), samples.healthy()), (100, 30)) as (app, pilot):
        await until(pilot, lambda: "✔ HEALTHY" in screen_text(app))


async def test_a_running_job_that_is_no_longer_recorded_is_pointed_out(monkeypatch):
    monkeypatch.setattr("rn50_advisor.advisor.tui.panels.banner._SILENT_S", 0.0)
    async with shown(Reports(samples.running()), (100, 30)) as (app, pilot):
        await until(pilot, lambda: "no new data" in screen_text(app))
    async with shown(Reports(samples.dead_rank(), None, None), (100, 30)) as (app, pilot):
        await pilot.pause(0.2)
        assert "nothing new" not in screen_text(app)


@pytest.mark.parametrize("width", [80, 120])
def test_beside_a_healthy_verdict_stands_how_much_was_checked_and_few_steps_are_no_such_verdict(width: int) -> None:
    banner = Banner()
    first = banner.draw(samples.healthy(), width)[0].plain
    assert first.startswith(" ✔ HEALTHY ") and first.rstrip().endswith("5 of 5 checks made")
    first = banner.draw(replace(samples.healthy(), step_time=StepTime(0.1, 0.1, 8, 5)), width)[0].plain
    assert first.startswith(" ○ NO BOTTLENECK SO FAR  8 steps: ") and first.rstrip().endswith("5 of 5 checks made")
    assert len(first.rstrip()) <= width and "checks" not in banner.draw(samples.running(), width)[0].plain


JOB = Job(("train.py",), None, 93.0, 2, running=True)


@pytest.mark.parametrize(
    ("job", "known", "said"),
    [
        (JOB, {}, "▶ running 1:33"),
        (JOB, {"stopping": "interrupted"}, "▶ running 1:33 · interrupted"),
        (JOB, {"ended": True}, "■ ended after 1:33 · reading the rest"),
        (JOB, {"end_unknown": True}, "▶ runs on, unrecorded after 1:33"),
        (JOB, {"end_unknown": True, "ended": True}, "■ ended, exit code unknown, recorded for 1:33"),
        (replace(JOB, running=False), {}, "■ ended, exit code –, after 1:33"),
        (replace(JOB, running=False, exit_code=0), {}, "✔ ended, exit code 0, after 1:33"),
        (replace(JOB, running=False, exit_code=1), {}, "✖ ended, exit code 1, after 1:33"),
        (replace(JOB, running=False, exit_signal="SIGKILL"), {}, "✖ ended by SIGKILL after 1:33"),
    ],
)
def test_what_the_job_is_doing(job: Job, known: dict[str, Any], said: str) -> None:
    assert line(*job_words(job, **known)).plain == said


@pytest.mark.parametrize("width", [40, 60, 80, 100, 200])
@pytest.mark.parametrize(("terminal_lines", "count"), [(24, 4), (28, 5), (60, 5)])
def test_the_banner_always_has_the_same_number_of_lines_and_they_fit(
    terminal_lines: int, count: int, width: int
) -> None:
    for make in (samples.running, samples.healthy, samples.young, samples.empty, samples.dead_rank):
        banner = Banner()
        banner.terminal_lines = terminal_lines
        banner.stopping = "interrupt sent × 2"
        rows = [content.plain for content in banner.draw(make(), width)]
        assert len(rows) == count and max(map(cell_len, rows)) <= width
        assert [row[1:6].rstrip() for row in rows[1:4]] == ["WHY", "FIX", "GAIN"]


@pytest.mark.parametrize(
    ("report", "line"),
    [
        (samples.running(), " GAIN about 2.5× faster (2.1–2.9×)                      ▶ running 4:12 · 2 ranks"),
        (samples.dead_rank(), " GAIN no prediction: the job has ended          ✖ ended, exit code 1, after 1:33"),
    ],
)
def test_on_a_low_screen_the_jobs_state_stands_beside_the_gain(report: Report, line: str) -> None:
    banner = Banner()
    banner.terminal_lines = 24
    assert banner.draw(report, 80)[3].plain == line


def test_a_job_without_a_name_has_that_of_the_screen() -> None:
    nameless = replace(samples.running(), job=JOB)
    assert " · mine · train.py" in Banner(fallback_name="mine").draw(nameless, 100)[4].plain
