"""`runs`: lists the runs of a folder with their verdicts, on a terminal as a screen, removes runs, and says where one is."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rn50_advisor.advisor.commands import common_options
from rn50_advisor.advisor.commands.completion import complete_run, given_run_dir
from rn50_advisor.advisor.commands.screen_available import has_terminal
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.model.wording import quantities as fmt
from rn50_advisor.advisor.model.wording.near_names import did_you_mean
from rn50_advisor.advisor.report.inert_text import one_line
from rn50_advisor.advisor.report.styled_lines import Line, Style, paint

if TYPE_CHECKING:
    from rn50_advisor.advisor.store.run_rows import RunRow

SCHEMA = "rn50-advisor/runs/1"
_HEAD = ("name", "when", "verdict", "likely gain", "samples/s", "duration", "size", "")
_LEFT = (0, 1, 2, 7)
_VERDICT = 2
_STATES: dict[str, tuple[str, Style]] = {
    "bottleneck": ("▲", "warn"),
    "healthy": ("✓", "good"),
    "inconclusive": ("?", "warn"),
    "failed": ("✗", "bad"),
    "recording": ("▶", "code"),
    "not judged": (fmt.DASH, "dim"),
    "unreadable": ("✗", "dim"),
}
_NAMES_SHOWN = 5


class _Subcommands(click.Group):
    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in self.commands or name.startswith("-") or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        hint = f"to list that folder: rn50-advisor runs --run-dir {name}" if Path(name).is_dir() else ""
        known = f"there are {', '.join(self.commands)}; without one, runs are listed"
        raise UsageError(f"No such command 'runs {name}'.", did_you_mean(name, self.commands) or hint or known)


def _listing_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of `runs` and of `runs list`."""
    judge = "Find and keep the verdict of ended runs without one (about a second each)."
    for option in (
        click.option("--json", "for_programs", is_flag=True, help="For programs."),
        click.option("--judge", is_flag=True, help=judge),
        click.option("-n", "--limit", type=click.IntRange(min=1), metavar="N", help="Only the N newest."),
        common_options.config,
        common_options.run_dir,
    ):
        command = option(command)
    return command


@click.group(cls=_Subcommands, invoke_without_command=True)
@_listing_options
@click.pass_context
def runs(
    context: click.Context, *, run_dir: Path, config: Path | None, limit: int | None, judge: bool, for_programs: bool
) -> None:
    """List runs, newest first: verdict, likely gain, speed, duration and size. Remove runs, or print where one is.

    On a terminal this is a screen, as `rn50-advisor` alone: open, compare, filter and remove runs there. In a pipe, with --json, with
    --judge, and as `runs list`, the list is printed. Verdicts are those that were found when each run ended; `report` judges anew.

    \b
    rn50-advisor runs
    rn50-advisor runs list -n 10
    rn50-advisor runs rm 20250131-120000-resnet50 baseline
    cd "$(rn50-advisor runs path latest)"
    """
    if context.invoked_subcommand is not None:
        return
    if not judge and not for_programs and has_terminal():
        from rn50_advisor.advisor.commands.listed.runs_screen import show_runs

        show_runs(run_dir, config=config, limit=limit)
    else:
        _print(run_dir, config, limit=limit, judge=judge, for_programs=for_programs)


@runs.command("list")
@_listing_options
@click.pass_context
def list_(
    context: click.Context, *, run_dir: Path, config: Path | None, limit: int | None, judge: bool, for_programs: bool
) -> None:
    """Print the list, on a terminal, too."""
    above = context.parent.params if context.parent is not None else {}
    _print(
        given_run_dir(context),
        config or above.get("config"),
        limit=limit or above.get("limit"),
        judge=judge or above.get("judge", False),
        for_programs=for_programs or above.get("for_programs", False),
    )


def _print(run_dir: Path, config: Path | None, *, limit: int | None, judge: bool, for_programs: bool) -> None:
    from rn50_advisor.advisor.store.run_folders import list_runs
    from rn50_advisor.advisor.store.run_rows import as_json, row_of

    folders = list_runs(run_dir)[:limit]
    if judge:
        _judge(folders, config)
    rows = [row_of(folder) for folder in folders]
    if for_programs:
        click.echo(json.dumps({"schema": SCHEMA, "runs": [as_json(row) for row in rows]}, indent=2))
    elif not rows:
        click.echo(f"no runs in {run_dir}; record one: rn50-advisor run -- COMMAND")
    else:
        width = shutil.get_terminal_size().columns if sys.stdout is not None and sys.stdout.isatty() else 0
        paint(listing(rows, now_unix_s=time.time(), width=width), sys.stdout)


@runs.command(short_help="Remove runs.")
@click.argument("names", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@common_options.run_dir
@click.pass_context
def rm(context: click.Context, *, names: tuple[str, ...], yes: bool, run_dir: Path) -> None:
    """Remove runs, each named in full: a folder, a name with or without its time, or `latest`.

    Removes what the recording made. Your own files in a run's folder stay, reports that you saved too, and the folder with them.
    Nothing is removed if one of the runs is still being recorded, or is not certainly a run.
    """
    if sys.platform != "linux":
        raise AdvisorError(f"runs rm needs Linux, this is {sys.platform}", "remove the folder by hand")
    from rn50_advisor.advisor.store.run_removal import removable, remove_run

    base = given_run_dir(context)
    found = {run.identity: run for run in (removable(_named_in_full(name, base)) for name in names)}
    chosen = list(found.values())
    size = fmt.bytes_(sum(run.size_bytes for run in chosen))
    if not yes:
        for run in chosen[:_NAMES_SHOWN]:
            click.echo(f"  {one_line(run.folder)}  {fmt.bytes_(run.size_bytes)}", err=True)
        if len(chosen) > _NAMES_SHOWN:
            click.echo(f"  and {len(chosen) - _NAMES_SHOWN} more", err=True)
        _ask(f"Remove {fmt.counted(len(chosen), 'run')} ({size})?")
    for run in chosen:
        kept = remove_run(run)
        click.echo(f"removed {one_line(run.folder)} ({fmt.bytes_(run.size_bytes)})")
        if kept:
            names_kept = ", ".join(kept[:_NAMES_SHOWN]) + (" …" if len(kept) > _NAMES_SHOWN else "")
            click.echo(f"  kept there, as the recording did not make it: {one_line(names_kept)}", err=True)


@runs.command(short_help="Print where a run is.")
@common_options.which_run
@common_options.run_dir
@click.pass_context
def path(context: click.Context, *, run: str, run_dir: Path) -> None:
    """Print the folder of RUN (or the bundle), for other programs."""
    from rn50_advisor.advisor.store.run_folders import resolve_run
    from rn50_advisor.advisor.store.schema import FILE_NAME

    found = resolve_run(run, given_run_dir(context)).absolute()
    click.echo(found.parent if found.name == FILE_NAME else found)


def listing(rows: Sequence[RunRow], *, now_unix_s: float, width: int = 0) -> list[Line]:
    """A line for each run, cut to `width` columns if that is not 0; then how to get the verdicts that are missing."""
    cells = [_cells(row, now_unix_s) for row in rows]
    widths = [max(len(line[i]) for line in (_HEAD, *cells)) for i in range(len(_HEAD))]
    if width:
        widths[-1] = max(0, width - sum(widths[:-1]) - 2 * (len(_HEAD) - 1))
    out = [_line(_HEAD, widths, "dim", "dim")]
    out += [_line(line, widths, "", _STATES[row.state][1]) for row, line in zip(rows, cells, strict=True)]
    if unjudged := sum(row.state == "not judged" for row in rows):
        out += [[], [(f"{fmt.counted(unjudged, 'run')} without a stored verdict: rn50-advisor runs --judge", "dim")]]
    return out


def _cells(row: RunRow, now_unix_s: float) -> tuple[str, ...]:
    glyph = _STATES[row.state][0]
    gain = ""
    if row.speedup is not None:
        gain = fmt.speedup(row.likely, row.speedup) if row.likely is not None else fmt.speedup_range(row.speedup)
    return (
        one_line(row.name, 80),
        _ago(now_unix_s - row.started_unix_s) if row.started_unix_s is not None else fmt.DASH,
        f"{glyph} {row.rule or row.state}",
        gain or fmt.DASH,
        fmt.rate(row.samples_per_s, ""),
        fmt.duration(row.duration_s),
        fmt.bytes_(row.size_bytes),
        one_line(row.title, 100),
    )


def _line(cells: Sequence[str], widths: Sequence[int], style: Style, verdict_style: Style) -> Line:
    line: Line = []
    for i, (cell, width) in enumerate(zip(cells, widths, strict=True)):
        text = fmt.shorten(cell, width)
        line += [
            (text.ljust(width) if i in _LEFT else text.rjust(width), verdict_style if i == _VERDICT else style),
            ("  ", ""),
        ]
    return line[:-1]


def _ago(seconds: float) -> str:
    for unit, name in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= unit:
            return f"{seconds // unit:.0f} {name} ago"
    return "just now"


def _judge(folders: Sequence[Path], config: Path | None) -> None:
    """Keeps the verdicts of runs that have none. A run that cannot be read or written stays as it is; a line on stderr says why."""
    from rn50_advisor.advisor.commands.saved_reports import keep_verdict
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.store.run_rows import row_of

    settings = load_config(config)
    for folder in folders:
        if row_of(folder).state != "not judged":
            continue
        try:
            keep_verdict(folder, settings)
        except (AdvisorError, OSError) as error:
            click.echo(f"rn50-advisor: {one_line(folder.name)} is not judged: {one_line(error)}", err=True)


def _named_in_full(argument: str, base: Path) -> Path:
    """Raises NotARun, and UsageError for a beginning: what is removed is named in full."""
    from rn50_advisor.advisor.store.run_folders import LATEST, is_called, path_of, resolve_run

    run = resolve_run(argument, base)
    if argument != LATEST and run != path_of(argument) and not is_called(run.name, argument):
        raise UsageError(
            f"{argument} is only the beginning of a name", f"to remove it: rn50-advisor runs rm {run.name}"
        )
    return run


def _ask(question: str) -> None:
    """Raises AdvisorError unless the answer is yes."""
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        if sys.stdin is not None and sys.stdin.isatty():
            raise  # Ctrl-C
        raise UsageError("nothing was removed: no terminal to confirm on", "--yes removes without asking") from None
    if not agreed:
        raise AdvisorError("nothing was removed")
