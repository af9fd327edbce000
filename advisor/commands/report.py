"""`report`: shows one recording as text, JSON, Markdown or HTML."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from rn50_advisor.advisor.commands import common_options, result_output
from rn50_advisor.advisor.commands.completion import complete_run
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.report import Report


@click.command
@click.argument("runs", metavar="[RUN | TRACE...]", nargs=-1, shell_complete=complete_run)
@result_output.format_option()
@result_output.output_option
@click.option("--full", is_flag=True, help="All of the text, not one page of it.")
@click.option("--open", "open_", is_flag=True, help="Open the HTML report in the browser.")
@common_options.run_dir
@common_options.config
def report(
    *,
    runs: tuple[str, ...],
    format_: str | None,
    output: Path | None,
    full: bool,
    open_: bool,
    run_dir: Path,
    config: Path | None,
) -> None:
    """Show the report of RUN: a folder, a run file, a bundle, a run's name, or `latest` (the default).

    A folder that holds runs instead of being one (on a disk that all nodes of a job wrote to, or with their bundles side by side) gives
    one report of its newest job, the runs of all its nodes merged.

    Files that torch.profiler exported are a run, too: one TRACE (.json or .json.gz) for each rank, or their folder.

    Works while the run is still going on, and on recordings of other machines; needs no PyTorch.

    \b
    rn50-advisor report --full
    rn50-advisor report --open
    rn50-advisor report latest -o report.html
    rn50-advisor report runs/20250131-120000-resnet50 --format json | jq .verdict
    rn50-advisor report log/resnet50/host_1234.1623143089861.pt.trace.json
    """
    from rn50_advisor.advisor.commands.reading_progress import reading_progress
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.merge.job_reading import read_job, read_several, resolve_job
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    form = "html" if open_ and format_ is None else result_output.chosen(format_, output)
    if open_ and form != "html":
        raise UsageError(f"--open shows HTML, not {form}", "leave out --format")
    with reading_progress() as progress:
        paths = [resolve_job(run, run_dir) for run in runs or ("latest",)]
        recording = read_several(paths, progress) if len(paths) > 1 else read_job(paths[0], progress=progress)
        made = diagnose(recording, load_config(config))
    if open_:
        _show_in_browser(made, paths[0], output)
    elif form == "text" and not full:
        result_output.show_page(made, output)
    else:
        result_output.show(made, form, output)


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
