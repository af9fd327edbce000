"""`report`: one recording as text, JSON, Markdown or HTML."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from advisor.commands import options
from advisor.core.errors import AdvisorError
from advisor.report import FORMATS, SUFFIXES, format_of, render


@click.command
@options.which_run
@click.option("--format", "format_", type=click.Choice(FORMATS), help="Default: by the name after -o, else text.")
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write to this file, not to stdout."
)
@options.run_dir
@options.config
def report(run: str, format_: str | None, output: Path | None, run_dir: Path, config: Path | None) -> None:
    """Show the report of RUN: a folder, a run file, a bundle, a run's name, or `latest` (the default).

    A folder that holds runs instead of being one (on a disk that all nodes of a job wrote to, or with their bundles side by side) gives
    one report of its newest job, the runs of all its nodes merged.

    Works while the run is still going on, and on recordings of other machines; needs no PyTorch.

    \b
    rn50-advisor report
    rn50-advisor report latest -o report.html
    rn50-advisor report runs/20250131-120000-resnet50 --format json | jq .verdict
    """
    from advisor.config import load_config
    from advisor.diagnose import diagnose
    from advisor.merge.reading import read_job, resolve_job

    if format_ is None:
        format_ = format_of(str(output)) if output is not None and output.suffix.lower() in SUFFIXES else "text"
    made = diagnose(read_job(resolve_job(run, run_dir)), load_config(config))
    if output is not None:
        try:
            output.write_text(render(made, format_), encoding="utf-8", errors="replace")
        except OSError as error:
            raise AdvisorError(f"cannot write {output}: {error.strerror or error}") from error
    elif format_ == "text":
        from advisor.report import lines, text

        lines.paint(text.document(made), sys.stdout)
    else:
        sys.stdout.write(render(made, format_))
