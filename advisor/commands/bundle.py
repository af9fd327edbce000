"""`bundle`: packs a run into one file for others, with secrets masked."""

from __future__ import annotations

from pathlib import Path

import click

from rn50_advisor.advisor.commands import common_options


@click.command
@common_options.which_run
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Default: <run>.tar.gz here.")
@click.option("--force", is_flag=True, help="Replace the file if it exists.")
@click.option("--with-code", is_flag=True, help="Keep the files of the job that findings point to, for diffs.")
@common_options.run_dir
def bundle(run: str, output: Path | None, force: bool, with_code: bool, run_dir: Path) -> None:
    """Pack RUN (a folder, a run's name, or `latest`) into one file that `report` and `watch` read anywhere.

    Environment variables and arguments that look like secrets are masked; no data of the job is in it, and no code
    of it unless you say so.

    \b
    rn50-advisor bundle latest -o slow-job.tar.gz
    """
    from rn50_advisor.advisor.store.run_bundle import make_bundle
    from rn50_advisor.advisor.store.run_folders import resolve_run

    click.echo(make_bundle(resolve_run(run, run_dir), output, force=force, with_code=with_code))
