"""`python -m samples.faults`: runs the scenarios, shows and writes what came out. Exit code 1: some verdict was wrong."""

from __future__ import annotations

import fnmatch
import itertools
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from samples.faults.catalogue import SCENARIOS
from samples.faults.results import advisor_state, cells, headline, machine, markdown, read_json, table, write_json
from samples.faults.runner import Bench, Interrupted, open_bench, run_scenario
from samples.faults.scenario import Scenario
from samples.faults.score import Result, summarise

FOLDER = Path(__file__).resolve().parents[2] / ".faults"
LOG_WIDTH = 190  # of the table where no terminal limits it


def choose(patterns: Sequence[str], *, fast: bool) -> list[Scenario]:
    """By name or glob, in the catalogue's order. Raises click.BadParameter for a pattern that fits nothing."""
    names = [scenario.name for scenario in SCENARIOS]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise click.BadParameter(f"no scenario is called {pattern!r}; --list shows them", param_hint="--only")
    chosen = [s for s in SCENARIOS if not patterns or any(fnmatch.fnmatch(s.name, pattern) for pattern in patterns)]
    return [scenario for scenario in chosen if scenario.fast or not fast]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, metavar="NAME|GLOB", help="These scenarios; may be given several times.")
@click.option("--fast", is_flag=True, help="Only the few that `make test` runs.")
@click.option("--repeat", type=click.IntRange(1), default=1, metavar="N", help="Each one so often, in rounds.")
@click.option("--list", "listing", is_flag=True, help="Name the scenarios and their truths; run nothing.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--markdown", "markdown_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--continue", "go_on", is_flag=True, help="Keep what --json's file holds and run only what it lacks.")
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER", help="Keep the runs here.")
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, help="Where jobs run.")
def main(
    *,
    only: tuple[str, ...],
    fast: bool,
    repeat: int,
    listing: bool,
    json_file: Path | None,
    markdown_file: Path | None,
    go_on: bool,
    keep: Path | None,
    folder: Path,
) -> None:
    """Run labelled faults on real training jobs and say how often the verdict was right."""
    chosen = choose(only, fast=fast)
    console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
    if listing:
        for scenario in chosen:
            console.print(f"{scenario.name:36} {scenario.strength:11} {scenario.truth.label}", highlight=False)
        return
    if go_on and json_file is None:
        raise click.UsageError("--continue needs --json, the file to continue")
    results = read_json(json_file) if go_on and json_file and json_file.exists() else []
    have = {(result.scenario, result.repetition) for result in results}
    todo = [(s, n) for n, s in itertools.product(range(repeat), chosen) if (s.name, n) not in have]
    try:
        with open_bench(folder, keep) as bench:
            run_all(todo, bench, results, json_file, console)
    except Interrupted as stopped:
        console.print(f"Stopped by {stopped}. Nothing is left running.")
        sys.exit(128 + stopped.signum)
    finally:
        conclude(results, markdown_file, console)
    ran = {scenario.name for scenario in chosen}
    sys.exit(any(not r.right and not r.skipped for r in results if r.scenario in ran))


def run_all(
    todo: Sequence[tuple[Scenario, int]], bench: Bench, results: list[Result], json_file: Path | None, console: Console
) -> None:
    """Adds to `results`, in this order, and writes them after each."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=len(todo))
        for scenario, repetition in todo:
            bar.update(task, description=scenario.name)
            result = replace(run_scenario(scenario, bench, repetition), advisor=advisor_state())
            results.append(result)
            bar.console.print("  ".join(cell for cell in cells(result) if cell), highlight=False, markup=False)
            for words in filter(None, (result.why_not, result.broken)):
                bar.console.print(f"    {words}", highlight=False, markup=False)
            if json_file:
                write_json(json_file, results, machine())
            bar.advance(task)


def conclude(results: list[Result], markdown_file: Path | None, console: Console) -> None:
    order = {scenario.name: number for number, scenario in enumerate(SCENARIOS)}
    results.sort(key=lambda r: (order.get(r.scenario, len(order)), r.repetition))
    if results:
        console.print(table(results))
        for line in headline(summarise(results)):
            console.print(line, highlight=False)
    if markdown_file:
        markdown_file.write_text(markdown(results, machine()))


if __name__ == "__main__":
    main()
