"""`report`: shows one recording as text, JSON, Markdown or HTML."""

from __future__ import annotations

from pathlib import Path

import click

from rn50_advisor.advisor.commands import common_options, result_output
from rn50_advisor.advisor.commands.completion import complete_run


@click.command
@click.argument("runs", metavar="[RUN | TRACE...]", nargs=-1, shell_complete=complete_run)
@result_output.format_option()
@result_output.output_option
@common_options.run_dir
@common_options.config
def report(
    *, runs: tuple[str, ...], format_: str | None, output: Path | None, run_dir: Path, config: Path | None
) -> None:
    """Show the report of RUN: a folder, a run file, a bundle, a run's name, or `latest` (the default).

    A folder that holds runs instead of being one (on a disk that all nodes of a job wrote to, or with their bundles side by side) gives
    one report of its newest job, the runs of all its nodes merged.

    Files that torch.profiler exported are a run, too: one TRACE (.json or .json.gz) for each rank, or their folder.

    Works while the run is still going on, and on recordings of other machines; needs no PyTorch.

    \b
    rn50-advisor report
    rn50-advisor report latest -o report.html
    rn50-advisor report runs/20250131-120000-resnet50 --format json | jq .verdict
    rn50-advisor report log/resnet50/host_1234.1623143089861.pt.trace.json
    """
    from rn50_advisor.advisor.commands.reading_progress import reading_progress
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.merge.job_reading import read_job, read_several, resolve_job
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    with reading_progress() as progress:
        if len(runs) > 1:
            recording = read_several([resolve_job(run, run_dir) for run in runs], progress)
        else:
            recording = read_job(resolve_job(runs[0] if runs else "latest", run_dir), progress=progress)
        made = diagnose(recording, load_config(config))
    result_output.show(made, result_output.chosen(format_, output), output)
