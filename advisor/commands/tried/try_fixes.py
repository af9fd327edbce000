"""`try`: runs the job with the advised changes applied from outside, in short trials, and says what each brings."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

import click

from rn50_advisor.advisor.commands import common_options, result_output
from rn50_advisor.advisor.commands.completion import complete_run
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.model.visible_text import on_one_line
from rn50_advisor.advisor.run.rings.own_folder import private_folder

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.trials import Tried

_COMMAND = "rn50_advisor.try.command"
_EXAMPLE = "rn50-advisor try -- python train.py"
_TIME = re.compile(r"(\d+(?:\.\d+)?)(s|m|h)?")
_UNITS_S = {"s": 1.0, "m": 60.0, "h": 3600.0}
_LEAST_S = 30.0
_PREFIX = "rn50-trials-"
# Commands that start the ranks elsewhere, or in a tree that is not ours, and how to run them here.
_ELSEWHERE = {
    "sbatch": "the batch system starts the job",
    "srun": "the batch system starts the ranks",
    "qsub": "the batch system starts the job",
    "ray": "Ray's own processes start the ranks",
    "kubectl": "the cluster starts the job",
    "docker": "the container's server starts the job",
    "ssh": "the job runs on another machine",
    "mpirun": "MPI may start ranks on other machines",
}
_NODES = ("--nnodes", "--num_machines", "--num-nodes", "--num_nodes")


class _UpToDashes(click.Command):
    """Options and the run stand before `--`, the job's command behind it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        own, job = (args[: args.index("--")], args[args.index("--") + 1 :]) if "--" in args else (args, [])
        ctx.meta[_COMMAND] = tuple(job)
        return super().parse_args(ctx, own)


def _seconds(context: click.Context, parameter: click.Parameter, value: str) -> float:
    found = _TIME.fullmatch(value.strip())
    if found is None:
        raise click.BadParameter(f"{value!r} is no time: 90s, 10m, 1h")
    seconds = float(found[1]) * _UNITS_S[found[2] or "s"]
    if seconds < _LEAST_S:
        raise click.BadParameter(f"four pairs of runs do not fit into {value}; give at least {_LEAST_S:.0f}s")
    return seconds


def _rules(context: click.Context, parameter: click.Parameter, values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(rule.strip().upper() for value in values for rule in value.split(",") if rule.strip())


@click.command("try", cls=_UpToDashes)
@click.argument("run", metavar="[RUN] -- COMMAND [ARGS]...", default="", shell_complete=complete_run)
@click.option(
    "--fix",
    "rules",
    multiple=True,
    metavar="RULE,...",
    callback=_rules,
    help="Try the fixes of these findings only, also one that changes the batch. Default: all that promise a gain.",
)
@click.option(
    "--budget",
    default="10m",
    show_default=True,
    metavar="TIME",
    callback=_seconds,
    help="How long all trials together may take: 90s, 10m, 1h.",
)
@click.option(
    "--allow-writes",
    is_flag=True,
    help="Try even where what the job writes cannot be kept away from your files: it then writes as always, several times.",
)
@click.option(
    "--history", is_flag=True, help="Run nothing: print the trials of this machine so far, predicted against measured."
)
@result_output.format_option()
@result_output.output_option
@common_options.run_dir
@common_options.config
@click.pass_context
def try_(
    context: click.Context,
    *,
    run: str,
    rules: tuple[str, ...],
    budget: float,
    allow_writes: bool,
    history: bool,
    format_: str | None,
    output: Path | None,
    run_dir: Path,
    config: Path | None,
) -> None:
    """Try the advised changes on COMMAND without touching a file, and measure what each brings.

    Runs the job as it is, takes the advice for it (or that for RUN), and applies each change from outside, in trials of seconds that are
    killed once they are measured. What a trial writes is thrown away.

    \b
    rn50-advisor try -- torchrun --nproc_per_node=2 train.py --epochs 1
    rn50-advisor try latest --fix DAT003 --budget 5m -- python train.py
    """
    if history:
        show_history()
        return
    command: tuple[str, ...] = context.meta[_COMMAND]
    if not command:
        raise UsageError("no command to try", f"put it behind two dashes: {_EXAMPLE}")
    if sys.platform != "linux":
        raise AdvisorError(f"try needs Linux, this is {sys.platform}")
    refuse_elsewhere(command)
    result_output.check_writable(output)
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.merge.job_reading import read_job, resolve_job
    from rn50_advisor.advisor.report.trials.trial_pages import document
    from rn50_advisor.advisor.trials.containment import CannotContain, Containment, choose
    from rn50_advisor.advisor.trials.trying import Settings, Trying
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    thresholds = load_config(config)
    advised = resolve_job(run, run_dir) if run else None
    report = diagnose(read_job(advised), thresholds) if advised else None
    with contextlib.ExitStack() as stack:
        for signum in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(signum) != signal.SIG_IGN:  # as under nohup
                signal.signal(signum, _stop)
        folder = stack.enter_context(private_folder(_PREFIX))
        try:
            containment: Containment | None = stack.enter_context(choose(command))
        except CannotContain:
            if not allow_writes:
                raise
            containment = None
        settings = Settings(command, folder, budget, containment, rules=rules)
        trying = Trying(settings, lambda recording: diagnose(recording, thresholds), _tell)
        tried = trying.run(report)
    _keep(tried, trying.torch, trying.device)
    kept = _keep_with_run(tried, advised) if advised is not None else ""
    result_output.show(tried, result_output.chosen(format_, output), output, document)
    if kept:
        _tell(kept)


def show_history() -> None:
    from rn50_advisor.advisor.report.styled_lines import paint
    from rn50_advisor.advisor.report.trials.history_text import history_lines
    from rn50_advisor.advisor.store.trial_history import history_file, read

    file = history_file(os.environ)
    paint(history_lines(read(file) if file else []), sys.stdout)


def _keep(tried: Tried, torch: str, device: str) -> None:
    """Keeps how well rules have foretold, for `try --history` and `rules --calibration`. Where that cannot be written, nothing is kept."""
    from rn50_advisor.advisor.store.trial_history import history_file, keep, past_trials

    file = history_file(os.environ)
    if file is not None:
        keep(past_trials(tried, day=f"{datetime.now():%Y-%m-%d}", torch=torch, device=device), file)


def _keep_with_run(tried: Tried, advised: Path) -> str:
    """Keeps the result beside the run, for its report and its screen. Returns where it is found, or why it could not be kept."""
    from rn50_advisor.advisor.merge.job_reading import own_folder
    from rn50_advisor.advisor.store.kept_trials import keep_tried

    folder = own_folder(advised)
    if folder is None:
        return on_one_line(f"not kept with {advised}: it is no folder of one run; -o FILE writes the result")
    try:
        keep_tried(folder, tried)
    except (AdvisorError, OSError) as error:
        why = error.message if isinstance(error, AdvisorError) else error.strerror or error
        return on_one_line(f"not kept with {folder}: {why}; -o FILE writes the result")
    return on_one_line(f"kept with the run: rn50-advisor report {folder}, or 7 in rn50-advisor watch {folder}")


def refuse_elsewhere(command: Sequence[str]) -> None:
    """Raises UsageError for a command whose ranks would not be ours to stop, or stand on several nodes."""
    program = os.path.basename(command[0])  # noqa: PTH119 - a name as typed
    if why := _ELSEWHERE.get(program):
        raise UsageError(
            f"{why}: try cannot stop what it has not started", f"inside an allocation, on one node: {_EXAMPLE}"
        )
    for word, following in zip(command, (*command[1:], ""), strict=True):
        name, _, value = word.partition("=")
        count = (value or following).partition(":")[0]
        if name in _NODES and count.isdigit() and int(count) > 1:
            raise UsageError(
                f"{word} {(value and '') or following}".strip() + ": try works on one node", f"try it on one: {name}=1"
            )


def _stop(signum: int, frame: FrameType | None) -> None:
    sys.exit(128 + signum)


def _tell(line: str) -> None:
    click.echo(f"rn50-advisor: {line}", err=True)
