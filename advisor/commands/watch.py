"""`watch`: shows a run of another terminal live, or replays an old one."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rn50_advisor.advisor.commands import common_options
from rn50_advisor.advisor.commands.screen_available import has_terminal
from rn50_advisor.advisor.model.errors import UsageError

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.recording import Meta
    from rn50_advisor.advisor.tui.app import AdvisorApp

STALE_S = 30.0  # a run is written every second; after this long without a write its advisor is gone


@click.command
@common_options.which_run
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    help="Replay speed as a factor. Default for old runs: 1.",
)
@common_options.run_dir
def watch(run: str, speed: float | None, run_dir: Path) -> None:
    """Show RUN (a folder, a file, a bundle, a name, or `latest`) on the screen: live while it runs, else as a replay.

    \b
    rn50-advisor watch
    rn50-advisor watch 20250131-120000-resnet50 --speed 8
    """
    if not has_terminal():
        raise UsageError("watch needs a terminal that can draw", f"without one: rn50-advisor report {run}")
    from rn50_advisor.advisor.merge.job_reading import resolve_job
    from rn50_advisor.advisor.tui.app import AdvisorApp

    screen_of(resolve_job(run, run_dir), AdvisorApp, speed=speed).run()


def screen_of(path: Path, screen: type[AdvisorApp], *, speed: float | None = None) -> AdvisorApp:
    """The screen of a run: live while it is recorded and no speed is given, else a replay. Raises NotARun."""
    from rn50_advisor.advisor.commands.saved_reports import saver
    from rn50_advisor.advisor.merge.job_reading import read_job
    from rn50_advisor.advisor.tui.report_source import LiveSource, ReplayedRun, ReportSource

    meta = read_job(path, recent_steps=1).meta
    live = speed is None and is_live(meta, now_unix_s=time.time())
    source: ReportSource = LiveSource(path) if live else ReplayedRun(path, speed=speed or 1.0)
    return screen(source, title=meta.name or path.name, save=saver(path), run=path)


def is_live(meta: Meta, *, now_unix_s: float) -> bool:
    """True if a process still writes this run, possibly from another host on a shared disk."""
    written_unix_s = meta.started_unix_s + (meta.last_ns - meta.started_ns) / 1e9
    return meta.ended_ns is None and meta.recording_stopped_ns is None and now_unix_s - written_unix_s < STALE_S
