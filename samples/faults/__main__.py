"""`python -m samples.faults`: runs the scenarios, shows and writes their results. Exit code 1: a verdict was wrong."""

from __future__ import annotations

import fnmatch
import itertools
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from samples.faults import kept_verdicts
from samples.faults.catalogue import SCENARIOS
from samples.faults.results import (
    advisor_state,
    cells,
    headline,
    machine,
    machine_words,
    markdown,
    merged,
    read_json,
    table,
    write_json,
)
from samples.faults.runner import Bench, Interrupted, open_bench, run_scenario
from samples.faults.scenario import Scenario, Suite
from samples.faults.score import Result, summarise, unfinished

FOLDER = Path(__file__).resolve().parents[2] / ".faults"
LOG_WIDTH = 210  # width of the table without a terminal


def choose(patterns: Sequence[str], suite: Suite) -> list[Scenario]:
    """Returns the scenarios of a suite whose name fits a pattern, all without patterns, in the catalogue's order.

    Raises click.BadParameter for a pattern that fits no scenario.
    """
    names = [scenario.name for scenario in SCENARIOS]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise click.BadParameter(f"no scenario is called {pattern!r}; --list shows them", param_hint="--only")
    suites = get_args(Suite)
    return [
        scenario
        for scenario in SCENARIOS
        if suites.index(scenario.suite) <= suites.index(suite)
        and any(fnmatch.fnmatch(scenario.name, pattern) for pattern in patterns or "*")
    ]


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, metavar="NAME|GLOB", help="These scenarios; may be given several times.")
@click.option("--all", "everything", is_flag=True, help="Also those that resemble another one.")
@click.option("--fast", is_flag=True, help="Only the few that `make test` runs.")
@click.option("--repeat", type=click.IntRange(1), default=1, metavar="N", help="Each one so often, in rounds.")
@click.option("--list", "listing", is_flag=True, help="Name the scenarios and their truths; run nothing.")
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--markdown", "markdown_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--continue", "go_on", is_flag=True, help="Keep what --json's file holds and run only what it lacks.")
@click.option(
    "--merge",
    multiple=True,
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Run nothing: take what earlier calls wrote with --json as repetitions; may be given several times.",
)
@click.option("--keep", type=click.Path(file_okay=False, path_type=Path), metavar="FOLDER", help="Keep the runs here.")
@click.option("--judge-only", is_flag=True, help="Leave out the jobs with the fix: no gain is measured.")
@click.option(
    "--verdicts",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Keep the right verdicts here, beside those of other scenarios; a test reads them off the screen.",
)
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=FOLDER, help="Where jobs run.")
def main(
    *,
    only: tuple[str, ...],
    everything: bool,
    fast: bool,
    repeat: int,
    listing: bool,
    json_file: Path | None,
    markdown_file: Path | None,
    go_on: bool,
    merge: tuple[Path, ...],
    keep: Path | None,
    judge_only: bool,
    verdicts: Path | None,
    folder: Path,
) -> None:
    """Run labelled faults on real training jobs and say how often the verdict was right."""
    chosen = choose(only, "fast" if fast else "all" if everything or merge or only else "usual")
    console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
    if listing:
        for scenario in chosen:
            console.print(f"{scenario.name:36} {scenario.strength:11} {scenario.truth.label}", highlight=False)
        return
    if go_on and json_file is None:
        raise click.UsageError("--continue needs --json, the file of these runs")
    names = {scenario.name for scenario in chosen}
    results: list[Result] = []
    try:
        if merge:
            results += [r for r in merged([read_json(file) for file in merge]) if r.scenario in names]
        else:
            results += read_json(json_file) if go_on and json_file and json_file.exists() else []
            have = {(result.scenario, result.repetition) for result in results}
            run = [replace(scenario, remedy=None) for scenario in chosen] if judge_only else chosen
            todo = [(s, n) for n, s in itertools.product(range(repeat), run) if (s.name, n) not in have]
            with open_bench(folder, keep, {} if verdicts else None) as bench:
                try:
                    run_all(todo, bench, results, json_file, console)
                finally:
                    if verdicts and bench.verdicts:
                        kept_verdicts.write({**kept_verdicts.read(verdicts), **bench.verdicts}, verdicts)
    except Interrupted as stopped:
        console.print(f"Stopped by {stopped}. Nothing is left running.")
        sys.exit(128 + stopped.signum)
    finally:
        conclude(results, markdown_file, console)
    if json_file and merge:
        write_json(json_file, results, machine())
    sys.exit(any_wrong([result for result in results if result.scenario in names]))


def any_wrong(results: Sequence[Result]) -> bool:
    return any(not result.right and not result.skipped for result in results)


def run_all(
    todo: Sequence[tuple[Scenario, int]], bench: Bench, results: list[Result], json_file: Path | None, console: Console
) -> None:
    """Runs the scenarios one after the other, adds each result to `results`, and rewrites the JSON file."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    where = machine()
    with Progress(*columns, console=console) as bar:
        task = bar.add_task("", total=len(todo))
        for scenario, repetition in todo:
            bar.update(task, description=scenario.name)
            start_s = time.monotonic()
            result = replace(
                run_once(scenario, bench, repetition),
                took_s=time.monotonic() - start_s,
                advisor=advisor_state(),
                machine=machine_words(where),
                date=where["date"],
            )
            results.append(result)
            bar.console.print("  ".join(cell for cell in cells(result) if cell), highlight=False, markup=False)
            for reason in filter(None, (result.why_not, result.broken)):
                bar.console.print(f"    {reason}", highlight=False, markup=False)
            bar.advance(task)
            if json_file:
                write_json(json_file, results, where)


def run_once(scenario: Scenario, bench: Bench, repetition: int) -> Result:
    """Runs a scenario; an error of the advisor is a wrong verdict. Raises CalledProcessError if a fixture could not be undone."""
    try:
        return run_scenario(scenario, bench, repetition)
    except subprocess.CalledProcessError:
        raise
    except Exception:  # noqa: BLE001 - most likely the advisor's bug, and no reason to lose the remaining scenarios
        return unfinished(scenario, repetition, traceback.format_exc(limit=-3))


def conclude(results: list[Result], markdown_file: Path | None, console: Console) -> None:
    order = {scenario.name: number for number, scenario in enumerate(SCENARIOS)}
    results.sort(key=lambda r: (order.get(r.scenario, len(order)), r.repetition))
    if results:
        console.print(table(results))
        for line in headline(summarise(results)):
            console.print(line, highlight=False)
    if markdown_file:
        markdown_file.write_text(markdown(results, {scenario.name: scenario.late for scenario in SCENARIOS}))


if __name__ == "__main__":
    main()
