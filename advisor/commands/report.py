"""`report`: shows one recording as text, JSON, Markdown or HTML, or writes it as a trace for Perfetto."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rn50_advisor.advisor.commands import common_options, result_output
from rn50_advisor.advisor.commands.completion import complete_run
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.report import is_trace_name

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.recording import Recording
    from rn50_advisor.advisor.model.report import Report
    from rn50_advisor.advisor.report.trackers import Destination

TRACE = "perfetto"


@click.command
@click.argument("runs", metavar="[RUN | TRACE...]", nargs=-1, shell_complete=complete_run)
@result_output.format_option(
    TRACE,
    told="Default: by the file name after -o (a trace for Perfetto: .perfetto.json, .perfetto.json.gz), else text.",
)
@result_output.output_option
@click.option("--full", is_flag=True, help="All of the text, not one page of it.")
@click.option("--open", "open_", is_flag=True, help="Open the HTML report in the browser.")
@click.option(
    "--to",
    "to",
    metavar="TRACKER",
    multiple=True,
    help="Send it to wandb[:[ENTITY/]PROJECT[/RUN_ID]], mlflow[:RUN_ID] or tensorboard:DIR. May be given several times.",
)
@common_options.run_dir
@common_options.config
def report(
    *,
    runs: tuple[str, ...],
    format_: str | None,
    output: Path | None,
    full: bool,
    open_: bool,
    to: tuple[str, ...],
    run_dir: Path,
    config: Path | None,
) -> None:
    """Show the report of RUN: a folder, a run file, a bundle, a run's name, or `latest` (the default).

    A folder that holds runs instead of being one (on a disk that all nodes of a job wrote to, or with their bundles side by side) gives
    one report of its newest job, the runs of all its nodes merged.

    Files that torch.profiler exported are a run, too: one TRACE (.json or .json.gz) for each rank, or their folder.

    Works while the run is still going on, and on recordings of other machines; needs no PyTorch.

    Format perfetto is a trace of the run for ui.perfetto.dev and chrome://tracing: steps and phases of each rank, loader workers,
    collectives, counters of hosts and GPUs, findings.

    --to sends it to an experiment tracker, whose library must be installed beside rn50-advisor: curves by step, the verdict, the findings
    and the HTML page. Sent again, also while the run goes on, it adds what is new.

    \b
    rn50-advisor report --full
    rn50-advisor report --open
    rn50-advisor report latest -o report.html
    rn50-advisor report runs/20250131-120000-resnet50 --format json | jq .verdict
    rn50-advisor report -o run.perfetto.json.gz
    rn50-advisor report --to wandb --to tensorboard:runs/tensorboard
    rn50-advisor report log/resnet50/host_1234.1623143089861.pt.trace.json
    """
    from rn50_advisor.advisor.commands.reading_progress import reading_progress
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.merge.job_reading import read_job, read_several, resolve_job
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    form = "html" if open_ and format_ is None else _chosen(format_, output)
    if open_ and form != "html":
        raise UsageError(f"--open shows HTML, not {form}", "leave out --format")
    destinations = _destinations(to)
    with reading_progress() as progress:
        paths = [resolve_job(run, run_dir) for run in runs or ("latest",)]
        recording = read_several(paths, progress) if len(paths) > 1 else read_job(paths[0], progress=progress)
        made = diagnose(recording, load_config(config))
    if destinations:
        _send(made, recording, paths[0], destinations)
        if not (open_ or output or format_ or full):
            return
    if open_:
        _show_in_browser(made, paths[0], output)
    elif form == TRACE:
        _write_trace(made, recording, paths[0], output)
    elif form == "text" and not full:
        result_output.show_page(made, output)
    else:
        result_output.show(made, form, output)


def _chosen(format_: str | None, output: Path | None) -> str:
    named = format_ is None and output is not None and is_trace_name(output.name)
    return TRACE if named else result_output.chosen(format_, output)


def _destinations(to: tuple[str, ...]) -> list[Destination]:
    """Where to send it, each once; nothing is read before all of them are known to be possible. Raises AdvisorError."""
    if not to:
        return []
    from rn50_advisor.advisor.report.trackers import check_installed, destination_of

    destinations = list(dict.fromkeys(destination_of(text) for text in to))
    check_installed(destinations)
    return destinations


def _send(made: Report, recording: Recording, run: Path, destinations: list[Destination]) -> None:
    """Says on stderr where each is: stdout may be the report. Raises AdvisorError."""
    from rn50_advisor.advisor.report.trackers import send
    from rn50_advisor.advisor.report.trackers.parcel import parcel_of

    meta = recording.meta
    identity = f"{meta.name}\0{meta.host}\0{meta.started_unix_s!r}\0{run.name if made.job.traced else ''}"
    parcel = parcel_of(made, started_unix_s=meta.started_unix_s or run.stat().st_mtime, identity=identity)
    for destination in destinations:
        click.echo(f"{destination.kind}: {send(destination, parcel)}", err=True)


def _write_trace(made: Report, recording: Recording, run: Path, output: Path | None) -> None:
    """Writes the trace to the file, else to stdout. Raises AdvisorError."""
    from rn50_advisor.advisor.merge.job_reading import own_folder
    from rn50_advisor.advisor.report.perfetto import save_trace, trace_of

    folder = None if made.job.traced else own_folder(run)
    if output is None:
        book, about = trace_of(made, recording, folder)
        result_output.write_bytes(lambda out: book.write(out, about))
        return
    try:
        save_trace(made, recording, output, folder)
    except OSError as error:
        raise AdvisorError(f"cannot write {output}: {error.strerror or error}") from error


def _show_in_browser(made: Report, run: Path, output: Path | None) -> None:
    """Prints the page's path, too: over SSH there is no browser. Raises AdvisorError if the page cannot be written."""
    from rn50_advisor.advisor.commands import saved_reports
    from rn50_advisor.advisor.tui.outside_programs import open_page

    page = output
    if page is None:
        try:
            page = saved_reports.page_for_browser(made, run)
        except OSError as error:
            raise AdvisorError(f"cannot write the page: {error.strerror or error}", "name a file with -o") from error
    else:
        result_output.write(made, page, "html")
    click.echo(str(page) if open_page(page) else f"no browser was found; open {page}")
