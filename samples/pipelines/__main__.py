"""`python -m samples.pipelines`: runs pipelines with their own number of workers and the advised one; about half a minute each."""

from __future__ import annotations

import fnmatch
import sys
from dataclasses import replace
from pathlib import Path

import click

from samples.faults.results import advisor_state, machine
from samples.faults.runner import Interrupted, open_bench
from samples.pipelines.catalogue import PIPELINES, Pipeline
from samples.pipelines.measure import Row, measure
from samples.pipelines.table import cells, headline, markdown, read_json, write_json

FOLDER = Path(__file__).resolve().parents[2] / ".faults"


def choose(patterns: tuple[str, ...]) -> list[Pipeline]:
    """Returns the pipelines whose name fits a pattern; all without patterns. Raises click.BadParameter for one that fits nothing."""
    for pattern in patterns:
        if not fnmatch.filter([p.name for p in PIPELINES], pattern):
            raise click.BadParameter(f"no pipeline is called {pattern!r}; --list shows them", param_hint="--only")
    return [p for p in PIPELINES if not patterns or any(fnmatch.fnmatch(p.name, pattern) for pattern in patterns)]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, metavar="NAME|GLOB", help="These pipelines; may be given several times.")
@click.option("--list", "listing", is_flag=True, help="Name the pipelines; run nothing.")
@click.option(
    "--json",
    "json_file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep what came out here; rows of pipelines that do not run again stay.",
)
@click.option("--markdown", "markdown_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--tries", type=click.IntRange(1), default=2, help="Runs at most, until nobody else disturbs one.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, help="Where jobs run.")
def main(
    *,
    only: tuple[str, ...],
    listing: bool,
    json_file: Path | None,
    markdown_file: Path | None,
    tries: int,
    folder: Path,
) -> None:
    """Hold the forecast over worker counts against other worker counts."""
    chosen = choose(only)
    if listing:
        for pipeline in chosen:
            click.echo(f"{pipeline.name:34} {pipeline.what}")
        return
    rows: dict[str, Row] = {row.pipeline: row for row in (read_json(json_file) if json_file else [])}
    try:
        with open_bench(folder) as bench:
            for pipeline in chosen:
                row = measure(pipeline, bench, tries=tries)
                row = rows[pipeline.name] = replace(row, advisor=advisor_state(), date=machine()["date"])
                click.echo(f"{' · '.join(cells(row))}{row.skipped and ': ' + row.skipped}")
                if json_file:
                    write_json(json_file, list(rows.values()))
    except Interrupted as stopped:
        click.echo(f"Stopped by {stopped}. Nothing is left running.")
        sys.exit(128 + stopped.signum)
    ordered = [rows[pipeline.name] for pipeline in PIPELINES if pipeline.name in rows]
    click.echo("\n".join(headline(ordered)))
    if markdown_file:
        markdown_file.write_text(markdown(ordered, machine()))


if __name__ == "__main__":
    main()
