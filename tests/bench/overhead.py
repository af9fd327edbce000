"""Overhead of the advisor: steps of four lengths with and without it, its start, its agent, its run folder.

python tests/bench/overhead.py [--pairs 5] [--quick] [--only '1ms-*'] [--traceml] [--json FILE] [--markdown FILE]

Run it on a quiet machine; `--markdown tests/bench/RESULTS.md` makes the kept result.
"""

from __future__ import annotations

import fnmatch
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import click
from bench_results import Footprint, Results, StartUp, StepCost, SwitchedCost, footprint, machine, step_cost, write_json
from bench_runs import (
    ENVIRONMENT,
    JOBS,
    LEAST_STEPS,
    RUN_S,
    BenchJob,
    RunFailed,
    Seen,
    cores,
    find_traceml,
    run_inside,
    run_plainly,
    run_under_traceml,
    run_watched,
    traceml_version,
    under_advisor,
)
from bench_tables import markdown, sheets, table
from rich.console import Console

from rn50_advisor.advisor.run.rings.own_folder import hold

INJECT = Path(__file__).resolve().parents[2] / "src" / "rn50_advisor" / "probes" / "rank" / "inject"
LOG_WIDTH = 160  # width of the tables without a terminal
QUICK = 0.05  # share of the steps
SWITCHED = {"1ms-1r-0w": 60, "5ms-1r-0w": 50, "50ms-1r-0w": 25}  # pairs of blocks
MARKED = 10  # pairs of blocks of `marks.py`, which are longer
# Jobs also timed with GPU events, on a double of `torch.cuda`, and in which steps the recorder takes events.
EVENTS = {"5ms-1r-0w": ("thinned", "each")}
IN_WORDS = {"": "", "thinned": ", GPU events as the recorder thins them", "each": ", GPU events in each step"}
FOOTPRINTS = ("1ms-1r-0w", "50ms-1r-0w", "5ms-2r-0w")
FOOTPRINT_S = (5.0, 35.0)
START_UP = "start-up"
NO_TRACEML = "not installed: pip install traceml-ai"
COMMANDS = (("python -c pass", "pass"), ("python -c 'import torch'", "import torch"))


def choose(patterns: Sequence[str]) -> list[str]:
    """Returns the names that fit, of jobs and `start-up`. Raises click.BadParameter for a pattern that fits nothing."""
    names = [*(job.name for job in JOBS), START_UP]
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise click.BadParameter(f"{pattern!r} fits none of {', '.join(names)}", param_hint="--only")
    return [name for name in names if not patterns or any(fnmatch.fnmatch(name, pattern) for pattern in patterns)]


def measure_steps(job: BenchJob, pairs: int, seconds: float, traceml: Path | None) -> StepCost:
    if obstacle := job.obstacle(cores()):
        return StepCost(job.name, job.title, job.ranks, job.workers, skipped=obstacle)
    ways = [run_plainly, run_watched]
    if traceml:
        ways.append(partial(run_under_traceml, traceml=traceml))
    seen: list[list[Seen]] = [[] for _ in range(3)]
    for pair in range(pairs):
        turn = list(enumerate(ways))
        for number, way in turn if pair % 2 == 0 else reversed(turn):
            seen[number].append(way(job, job.steps_in(seconds)))
    versions = {one.torch for way in seen for one in way}
    if len(versions) > 1:
        raise RunFailed(f"TraceML's environment has another torch: {', '.join(sorted(versions))}")
    return step_cost(job, *seen)


def measure_inside(script: str, job: BenchJob, pairs: int, events: str = "") -> SwitchedCost:
    took = run_inside(script, job, pairs, events)
    title = job.title + IN_WORDS[events]
    return SwitchedCost(job.name, title, **{name: took[name] for name in took if name != "torch"})


def measure_footprint(job: BenchJob, scale: float) -> Footprint:
    short, long = (run_watched(job, job.steps_in(scale * seconds)) for seconds in FOOTPRINT_S)
    return footprint(job, short, long)


def measure_start_up(pairs: int) -> list[StartUp]:
    found = []
    for name, code in COMMANDS:
        command = [sys.executable, "-c", code]
        alone, whole = [], []
        _wall_s(command)  # reads its files from the disk, untimed
        for _ in range(pairs):
            with tempfile.TemporaryDirectory() as place:
                without_s = _wall_s(command)
                hold(Path(place))
                recorder = {"RN50_ADVISOR_DIR": place, "PYTHONPATH": str(INJECT)}
                alone.append((without_s, _wall_s(command, **recorder)))
                whole.append((without_s, _wall_s(under_advisor(command, Path(place)))))
        for under, rows in (("the recorder alone", alone), ("under `run`, with summary and report", whole)):
            differences = [b - a for a, b in rows]
            without_s = statistics.median(a for a, _ in rows)
            found.append(StartUp(name, under, without_s, statistics.median(differences)))
    return found


def _wall_s(command: Sequence[str], **more: str) -> float:
    began = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, env={**ENVIRONMENT, **more})
    return time.perf_counter() - began


def measure(names: Sequence[str], results: Results, traceml: Path | None, json_file: Path | None) -> None:
    """Adds measurements to `results`, and writes all after each one."""
    console = Console(stderr=True)
    chosen = [job for job in JOBS if job.name in names]
    scale = QUICK if results.quick else 1.0

    def done(what: str) -> None:
        console.print(f"  {time.strftime('%H:%M:%S')} {what}", style="dim", highlight=False)
        if json_file:
            write_json(json_file, results)

    if chosen and not results.quick:
        run_plainly(chosen[-1], LEAST_STEPS)  # reads torch and torchvision from the disk, untimed
    for job in chosen:
        results.steps.append(measure_steps(job, results.pairs, scale * RUN_S, traceml))
        done(f"{job.name}: pairs")
    for job in chosen:
        if job.name in SWITCHED:
            for events in ("", *EVENTS.get(job.name, ())):
                pairs = max(2, int(scale * SWITCHED[job.name]))
                results.switched.append(measure_inside("switched.py", job, pairs, events))
                results.marks.append(measure_inside("marks.py", job, max(2, int(scale * MARKED)), events))
            done(f"{job.name}: switched")
    for job in chosen:
        if job.name in FOOTPRINTS:
            results.footprints.append(measure_footprint(job, scale))
            done(f"{job.name}: beside the job")
    if START_UP in names:
        results.start_up += measure_start_up(results.pairs)
        done(START_UP)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--pairs", type=click.IntRange(2), default=5, show_default=True, help="Runs of each job and way.")
@click.option("--quick", is_flag=True, help="Two pairs of a twentieth of the steps: does it run at all?")
@click.option("--only", multiple=True, metavar="GLOB", help="These jobs (1ms-2r-0w: 2 ranks, 0 workers), or start-up.")
@click.option(
    "--traceml",
    is_flag=False,
    flag_value="traceml",
    metavar="[COMMAND]",
    help="TraceML too; its `traceml`, if not here.",
)
@click.option("--json", "json_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
@click.option("--markdown", "markdown_file", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE")
def main(
    *,
    pairs: int,
    quick: bool,
    only: tuple[str, ...],
    traceml: str | None,
    json_file: Path | None,
    markdown_file: Path | None,
) -> None:
    """Measure what the advisor costs training jobs on this machine."""
    names = choose(only)
    tool = find_traceml(traceml) if traceml else None
    results = Results(2 if quick else pairs, quick)
    if traceml:
        results.traceml = traceml_version(tool) if tool else NO_TRACEML
    try:
        measure(names, results, tool, json_file)
    except RunFailed as error:
        raise click.ClickException(str(error)) from error
    finally:  # after an interrupt, the finished measurements are still shown
        console = Console(width=None if sys.stdout.isatty() else LOG_WIDTH)
        for sheet in sheets(results):
            console.print(table(sheet))
    if markdown_file:
        markdown_file.write_text(markdown(results, machine()))


if __name__ == "__main__":
    main()
