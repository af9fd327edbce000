"""`demo`: shows a recorded run that the package brings along. Needs no PyTorch, and touches no run of the user's."""

from __future__ import annotations

from pathlib import Path

import click

from rn50_advisor.advisor.commands.screen_available import has_terminal

RUN = Path(__file__).with_name("resnet50.tar.gz")  # made by samples/record_demo.py
_MORE = "demo --full: evidence, limits, machine; demo on a terminal: the screen"


@click.command
@click.option(
    "--no-tui",
    is_flag=True,
    envvar="RN50_ADVISOR_NO_TUI",
    show_envvar=True,
    help="No screen, even on a terminal: print the report of the run.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=4.0,
    show_default=True,
    help="Replay speed as a factor.",
)
@click.option("--full", is_flag=True, help="Print all of the report, not one page of it.")
def demo(*, no_tui: bool, speed: float, full: bool) -> None:
    """Show what the advisor says of a job: ResNet50 on two CPU cores, recorded in a minute.

    Replays that run on the screen; without a terminal, or with --no-tui, prints its report. Nothing is trained, nothing
    needs PyTorch, and your own runs stay as they are.

    \b
    rn50-advisor demo
    rn50-advisor demo --no-tui
    """
    if no_tui or full or not has_terminal():
        _print_report(full=full)
    else:
        _replay(speed)


def _print_report(*, full: bool) -> None:
    from rn50_advisor.advisor.commands import result_output
    from rn50_advisor.advisor.merge.job_reading import read_job
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    report = diagnose(read_job(RUN))
    if full:
        result_output.show(report, "text", None)
    else:
        result_output.show_page(report, None, more=_MORE)


def _replay(speed: float) -> None:
    from rn50_advisor.advisor.commands.saved_reports import in_temporary_folder
    from rn50_advisor.advisor.tui.app import AdvisorApp
    from rn50_advisor.advisor.tui.report_source import ReplayedRun

    AdvisorApp(ReplayedRun(RUN, speed=speed), title="demo", save=in_temporary_folder).run()
