"""`run`: starts and watches the job. Errors on the command line are reported before the job starts."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

import click

from rn50_advisor.advisor.commands import common_options
from rn50_advisor.advisor.commands.completion import complete_file, complete_job
from rn50_advisor.advisor.commands.screen_available import has_terminal
from rn50_advisor.advisor.model.errors import (
    AdvisorError,
    CommandNotExecutable,
    CommandNotFound,
    ConfigError,
    UsageError,
)
from rn50_advisor.advisor.report import format_of, is_trace_name
from rn50_advisor.unwatched import become

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.recording import Recording
    from rn50_advisor.advisor.model.report import Report
    from rn50_advisor.advisor.run.launch.launcher import JobEnd
    from rn50_advisor.advisor.run.run_options import RunOptions


_MESSAGE_CHARS_MAX = 1000  # characters of a message or a hint


def check_report_files(context: click.Context, parameter: click.Parameter, files: tuple[str, ...]) -> tuple[str, ...]:
    for file in files:
        if not is_trace_name(file):
            format_of(file)
    return files


@click.command(context_settings={"allow_interspersed_args": False})
@click.argument(
    "command", nargs=-1, type=click.UNPROCESSED, metavar="[--] COMMAND [ARGS]...", shell_complete=complete_job
)
@common_options.run_dir
@click.option("--name", default="", help="Name of the run; its folder is <time>-<name>.")
@click.option(
    "--no-tui",
    is_flag=True,
    envvar="RN50_ADVISOR_NO_TUI",
    show_envvar=True,
    help="No screen, even on a terminal: the terminal is left to the job, which cannot be typed to behind the screen (input(), "
    "breakpoint() and logins find an empty input there).",
)
@common_options.config
@click.option(
    "--overhead-budget",
    type=click.FloatRange(0, 100, min_open=True),
    default=2.0,
    show_default=True,
    metavar="PERCENT",
    help="Switch measurements off, the most expensive first, when observing the job costs more than this.",
)
@click.option(
    "--deep",
    is_flag=True,
    help="Profile two early steps of the first rank with torch's profiler: kernels by class, idle time of the GPU, "
    "FLOPs. These steps are slower and excluded from all other numbers; the trace is kept in the run's folder.",
)
@click.option(
    "--deep-auto",
    is_flag=True,
    help="The same, later and once, only if the job trains on a GPU, hardly waits for anything else, and profiling costs "
    "less than the overhead budget.",
)
@click.option(
    "--report",
    "report_files",
    multiple=True,
    metavar="FILE",
    callback=check_report_files,
    shell_complete=complete_file,
    help="Write a report when the job has ended; .html, .md, .json, .txt or, for Perfetto, .perfetto.json.gz. May be given several times.",
)
@click.option(
    "--merge-listen",
    metavar="HOST:PORT",
    default="",
    help="Receive what other nodes send while they record, and show the job as a whole. Without it nothing listens.",
)
@click.option(
    "--merge-to", metavar="HOST:PORT", default="", help="Send a summary of this run to that node every ten seconds."
)
@click.option(
    "--merge-token-file",
    metavar="FILE",
    default="",
    help="The secret that both sides share: --merge-listen creates it if it does not exist; copy it to the other nodes, "
    "which look for it while the job runs.",
)
@click.option(
    "--metrics-file",
    metavar="FILE.prom",
    default="",
    shell_complete=complete_file,
    help="Keep metrics of the running job in this file, for the textfile collector of Prometheus's node_exporter.",
)
@click.option(
    "--metrics-listen",
    metavar="[HOST:]PORT",
    default="",
    help="Serve metrics of the running job to Prometheus, at /metrics; to this host alone unless HOST says otherwise. "
    "Without it nothing listens.",
)
@click.option(
    "--otlp",
    metavar="URL",
    default="",
    envvar="RN50_ADVISOR_OTLP",
    show_envvar=True,
    help="Send metrics of the running job to an OpenTelemetry collector, as OTLP over HTTP.",
)
@click.option(
    "--notify",
    metavar="URL",
    default="",
    envvar="RN50_ADVISOR_NOTIFY",
    show_envvar=True,
    help="Post a line to this webhook (Slack, Teams, or JSON to anything else) when the job hangs, dies or becomes slower.",
)
def run(
    *,
    command: tuple[str, ...],
    run_dir: Path,
    name: str,
    no_tui: bool,
    config: Path | None,
    overhead_budget: float,
    deep: bool,
    deep_auto: bool,
    report_files: tuple[str, ...],
    merge_listen: str,
    merge_to: str,
    merge_token_file: str,
    metrics_file: str,
    metrics_listen: str,
    otlp: str,
    notify: str,
) -> NoReturn:
    """Run COMMAND unchanged, watch it, and say what holds it back.

    Options of rn50-advisor stand before COMMAND; everything from COMMAND on belongs to the job. Exit code, output and
    signals are the job's. On a terminal a screen opens; elsewhere one short summary goes to stderr at the end.

    \b
    rn50-advisor run -- torchrun --nproc_per_node=2 train.py --epochs 1
    rn50-advisor run --name baseline --report report.html python train.py
    rn50-advisor run --merge-to node0:29600 --merge-token-file token -- torchrun --nnodes=2 ... train.py

    Where yama lets only ancestors look into a process, the job's processes let the advisor, for the lines of hangs, and with it
    each other; RN50_ADVISOR_NO_PTRACE=1 leaves that as it is.
    """
    if not command:
        raise UsageError("no command to run", "rn50-advisor run -- python train.py")
    if sys.platform != "linux":
        raise AdvisorError(f"run needs Linux, this is {sys.platform}", "report, watch and compare work here too")
    from rn50_advisor.advisor.commands.conclusion import conclude, warn
    from rn50_advisor.advisor.run.launch.launcher import exit_like
    from rn50_advisor.advisor.run.run_options import RunOptions

    if config is not None or _has_table(Path("pyproject.toml")):
        check_config(config)
    check_merge(merge_listen, merge_to, merge_token_file)
    settings = RunOptions(
        overhead_budget=overhead_budget / 100,
        deep="now" if deep else "auto" if deep_auto else "off",
        merge_listen=merge_listen,
        merge_to=merge_to,
        merge_token_file=merge_token_file,
        metrics_file=metrics_file,
        metrics_listen=metrics_listen,
        otlp=otlp,
        notify=notify,
        thresholds_file=str(config or ""),
    )
    if settings.has_outlets:
        from rn50_advisor.advisor.outlets.asked_outlets import check_outlets

        check_outlets(settings)
    # Path.exists raises before Python 3.14 where it may not ask
    made = [path for path in (run_dir, *run_dir.parents) if not os.path.exists(path)]  # noqa: PTH110
    folder = _folder(run_dir, name)
    if settings.has_outlets and folder is None:
        warn("no metrics leave a run that is not recorded")
    on_screen = not no_tui and has_terminal()

    def diagnosis(recording: Recording) -> Report:
        from rn50_advisor.advisor.config_file import load_config
        from rn50_advisor.advisor.verdict.diagnose import diagnose

        return diagnose(recording, load_config(config))

    try:
        if on_screen and folder is not None:  # without a folder the job's output cannot be kept behind the screen
            end = _behind_screen(command, folder, settings, name, diagnosis)
        else:
            end = _plainly(command, folder, settings, name)
    except (CommandNotFound, CommandNotExecutable):
        _remove_empty(made)  # the run's own folder is gone already
        raise
    if end is None:
        unwritten = f", {', '.join(report_files)} not written" if report_files else ""
        warn(f"the job goes on{unwritten}; rn50-advisor watch {folder}")
        os._exit(0)
    if end.recorded and folder is not None:
        conclude(folder, diagnosis, report_files)
    elif report_files:
        warn(f"nothing was recorded, so {', '.join(report_files)} was not written")
    exit_like(end)


def _plainly(command: tuple[str, ...], folder: Path | None, settings: RunOptions, name: str) -> JobEnd:
    """Runs the job on our standard streams; the launcher itself reports problems of the recording."""
    started: list[int] = []
    try:
        from rn50_advisor.advisor.run.launch.launcher import run_job

        return run_job(command, run_folder=folder, options=settings, name=name, on_start=started.append)
    except AdvisorError:
        raise
    except Exception as error:  # the job starts even if the advisor fails before it
        if started or _has_children():
            raise
        become(command, error)


def _has_children() -> bool:
    """True if a process that we started still runs: it may be the job."""
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    return True


def _behind_screen(
    command: tuple[str, ...], folder: Path, settings: RunOptions, name: str, diagnosis: Callable[[Recording], Report]
) -> JobEnd | None:
    from rn50_advisor.advisor.commands.conclusion import warn

    try:
        from rn50_advisor.advisor.commands.on_screen import run_on_screen
    except ImportError as error:
        warn(f"the job runs without the screen: {error}")
        return _plainly(command, folder, settings, name)
    try:
        end = run_on_screen(command, folder=folder, settings=settings, name=name, diagnosis=diagnosis)
    except (CommandNotFound, CommandNotExecutable):
        raise
    except AdvisorError as error:
        warn(f"the job runs without the screen: {error}")
        return _plainly(command, folder, settings, name)
    if end is not None and not end.started and end.exit_code is not None:
        warn(f"the job runs without the screen: its supervisor exited with code {end.exit_code}")
        return _plainly(command, folder, settings, name)
    if end is not None and end.complaint:
        warn(end.complaint)
    if end is not None and end.exit_code is None and end.signal is None:
        return replace(end, exit_code=1)  # an unknown end is not a success
    return end


def check_merge(listen: str, to: str, token_file: str) -> None:
    """Checks the merge options and, on the listening side, creates a missing token. Raises UsageError or AdvisorError.

    The sending side starts without a token: the listening side may create it later, and the job does not wait. The run reports it.
    Without pyzmq the job also starts, after a warning here; the run reports that too.
    """
    if not listen and not to:
        if token_file:
            raise UsageError("--merge-token-file without a merge", "add --merge-listen or --merge-to")
        return
    if listen and to:
        raise UsageError("a node either listens or sends", "--merge-listen on one node, --merge-to on all others")
    if not token_file:
        raise UsageError("a merge needs --merge-token-file", "the listening side creates the file")
    from rn50_advisor.advisor.merge.live_merge import INSTALL, NoToken, has_pyzmq, parse_address, read_token

    if not parse_address(listen or to)[0] and to:
        raise UsageError(f"{to!r} does not name a host", "give HOST:PORT")
    try:
        read_token(Path(token_file), make=bool(listen))
    except NoToken:
        if listen:
            raise
    if not has_pyzmq():
        from rn50_advisor.advisor.commands.conclusion import warn

        warn(f"the job runs without the live merge: pyzmq is not installed; {INSTALL}")


def _has_table(pyproject: Path) -> bool:
    try:
        return b"tool.rn50-advisor" in pyproject.read_bytes()
    except OSError:
        return False


def check_config(config: Path | None) -> None:
    """Checks the configuration in a child: it imports the rules, hence numpy, whose threads must not exist before the job.

    Raises ConfigError.
    """
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        failure: dict[str, str] = {}
        try:
            from rn50_advisor.advisor.config_file import load_config

            load_config(config)
        except AdvisorError as error:
            failure = {"message": error.message[:_MESSAGE_CHARS_MAX], "hint": error.hint[:_MESSAGE_CHARS_MAX]}
        except Exception as error:  # noqa: BLE001 - a child must not return into its parent's stack
            failure = {"unread": f"{type(error).__name__}: {error}"[:_MESSAGE_CHARS_MAX]}
        finally:
            os.write(writer, json.dumps(failure).encode())
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as answers:
        answer = answers.read()
    os.waitpid(child, 0)
    failure = json.loads(answer or b"{}")
    if "unread" in failure:  # the advisor's fault, not the file's: the job runs
        from rn50_advisor.advisor.commands.conclusion import warn

        warn(f"{config or 'pyproject.toml'} could not be checked: {failure['unread']}")
    elif failure:
        raise ConfigError(failure["message"], failure["hint"])


def _remove_empty(folders: Sequence[Path]) -> None:
    """Removes folders, the innermost first, as far as nothing is in them."""
    with contextlib.suppress(OSError):
        for folder in folders:
            folder.rmdir()


def _folder(run_dir: Path, name: str) -> Path | None:
    """Creates a folder for the run; None if it cannot be created, and the job then runs unrecorded."""
    from rn50_advisor.advisor.commands.conclusion import warn
    from rn50_advisor.advisor.store.run_folders import new_run_folder

    try:
        return new_run_folder(run_dir, name, time.time())
    except AdvisorError as error:
        warn(f"the job runs unrecorded: {error.message}")
        return None
