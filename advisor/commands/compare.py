"""`compare`: several runs side by side, and a limit for CI."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rn50_advisor.advisor.commands import common_options, result_output
from rn50_advisor.advisor.commands.completion import complete_run
from rn50_advisor.advisor.model.errors import NotComparable, Regressed, UsageError

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.documents.comparison import Comparison
    from rn50_advisor.advisor.model.thresholds import Config
    from rn50_advisor.advisor.traces.trace_content import Progress


@click.command
@click.argument("runs", nargs=-1, required=True, metavar="RUN RUN...", shell_complete=complete_run)
@result_output.format_option()
@click.option(
    "--max-regression",
    type=click.FloatRange(min=0, max=100),
    metavar="PERCENT",
    help="End with exit code 3 when a run is significantly slower than the first, by more than this, with 4 when one cannot be compared.",
)
@click.option(
    "--between-runs",
    type=click.FloatRange(min=0, max=50),
    metavar="PERCENT",
    help="How much runs of the same job differ on this machine (standard deviation). Default: 5, and 2 for jobs on GPUs.",
)
@click.option(
    "--repeated",
    multiple=True,
    metavar="RUN",
    shell_complete=complete_run,
    help="Another run of the first one's job, to measure that instead; may be given several times.",
)
@result_output.output_option
@common_options.run_dir
@common_options.config
def compare(
    *,
    runs: tuple[str, ...],
    format_: str | None,
    max_regression: float | None,
    between_runs: float | None,
    repeated: tuple[str, ...],
    output: Path | None,
    run_dir: Path,
    config: Path | None,
) -> None:
    """Put runs side by side: before and after a change, or on 1, 2, ... ranks. Each is compared with the first.

    Says improved, regressed or same, with an interval; what became faster and slower in a step; how throughput scales; and in what the
    runs differ: arguments, versions, loader, environment, machine, findings. RUN is a folder, a bundle, a name, `latest`, or a trace of
    torch.profiler.
    Results of triage and bench (JSON) are put side by side by fleet.

    \b
    rn50-advisor compare before after
    rn50-advisor compare one-rank two-ranks four-ranks -o scaling.html
    rn50-advisor compare main branch --max-regression 5
    """
    from rn50_advisor.advisor.commands.reading_progress import reading_progress
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.report.compared import document, wording

    if len(runs) < 2:
        raise UsageError("compare needs at least two runs", "rn50-advisor compare BEFORE AFTER")
    with reading_progress() as progress:
        made = side_by_side(
            runs,
            run_dir,
            load_config(config),
            repeated=repeated,
            between_runs=between_runs,
            max_regression=max_regression,
            progress=progress,
        )
    result_output.show(made, result_output.chosen(format_, output), output, document)
    if made.gate is not None and made.gate.failed:
        raise Regressed(wording.gate(made))
    if made.gate is not None and made.gate.unjudged:
        raise NotComparable(wording.gate(made), "let the runs last longer, or compare runs of the same job")


def side_by_side(
    runs: Sequence[str],
    run_dir: Path,
    settings: Config,
    *,
    repeated: Sequence[str] = (),
    between_runs: float | None = None,
    max_regression: float | None = None,
    progress: Progress | None = None,
) -> Comparison:
    """Reads the runs that are named so and compares them with the first; shares in per cent. Raises NotARun and UsageError."""
    from rn50_advisor.advisor.merge.job_reading import read_job, resolve_job
    from rn50_advisor.advisor.run_comparison import compare as put_side_by_side
    from rn50_advisor.advisor.run_comparison import load
    from rn50_advisor.advisor.traces.trace_content import looks_like_a_trace

    results = [run for run in (*runs, *repeated) if run.endswith(".json") and Path(run).is_file()]
    if results := [run for run in results if not looks_like_a_trace(Path(run))]:
        message = f"{results[0]} is not a run: fleet compares results of triage and bench"
        raise UsageError(message, f"rn50-advisor fleet {' '.join(runs)}; of one machine: bench --against EARLIER.json")
    paths = [resolve_job(run, run_dir) for run in (*runs, *repeated)]
    loaded = [
        load(name, read_job(path, progress=progress), settings, place=place)
        for place, (name, path) in enumerate(zip(_names(paths), paths, strict=True))
    ]
    return put_side_by_side(
        loaded[: len(runs)],
        repeated=loaded[len(runs) :],
        between_runs=None if between_runs is None else between_runs / 100,
        max_regression=None if max_regression is None else max_regression / 100,
    )


def _names(paths: list[Path]) -> list[str]:
    """Names the runs by folder or bundle; equal names get the parent folder in front or a number behind."""
    from rn50_advisor.advisor.store.run_bundle import SUFFIX
    from rn50_advisor.advisor.store.schema import FILE_NAME

    paths = [path.resolve() for path in paths]
    paths = [path.parent if path.name == FILE_NAME else path for path in paths]
    names = [path.name.removesuffix(SUFFIX) for path in paths]
    return [
        name
        if names.count(name) == 1
        else f"{path.parent.name}/{name}"
        if len({path.parent.name for path in paths}) == len(paths)
        else f"{name} ({place + 1})"
        for place, (name, path) in enumerate(zip(names, paths, strict=True))
    ]
