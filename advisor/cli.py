"""The command line: finds the command, and turns every error into one clear line and an exit code."""

from __future__ import annotations

import contextlib
import gc
import os
import shlex
import shutil
import signal
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rn50_advisor import advisor
from rn50_advisor.advisor.commands.completion import COMPLETION_VARIABLE
from rn50_advisor.advisor.commands.screen_available import has_terminal, use_plain_glyphs
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.model.wording.near_names import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

PROGRAM = "rn50-advisor"
DEBUG_VARIABLE = "RN50_ADVISOR_DEBUG"
INTERRUPTED = 130  # 128 + SIGINT
OUTPUT_CLOSED = 141  # 128 + SIGPIPE, as for any filter whose reader went away
_UNPACK = (
    "report",
    "compare",
    "ci",
    "fleet",
    "bundle",
    "demo",
)  # commands that may unpack a bundle; none of them starts a process
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h

# New objects between two garbage collections: the screen's 800 modules are imported in 0.70 s of CPU time without any and in 0.81 s
# with Python's 700 (medians of three).
COLLECT_AFTER = 20_000

# Name, module and one line of help: listing commands must not import them.
COMMANDS = {
    "run": ("run", "Run a training job, watch it, and say what holds it back."),
    "watch": ("watch", "Watch a run from another terminal live, or replay an old one."),
    "report": ("report", "Show the report of a run, also while it is still running, or of traces of torch.profiler."),
    "runs": ("runs", "List runs with their verdicts: open, compare or remove them, or say where one is."),
    "compare": ("compare", "Compare runs: faster, slower or the same, and why."),
    "ci": (
        "checked.check_change",
        "Show a run in CI: comment, annotations, pages, and an exit code if it became slower.",
    ),
    "bench": ("bench", "Benchmark ResNet50 setting by setting: how fast, and what holds it back."),
    "fleet": ("fleet", "Rank many machines by their results; name the outliers."),
    "triage": ("triage", "Check a machine before training on it: keep it, fix a setting, or replace it."),
    "try": ("tried.try_fixes", "Try the advised changes on a job, without editing a file: what each brings."),
    "mcp": ("agents.mcp_server", "Offer runs and verdicts to a coding agent (Model Context Protocol)."),
    "explain": ("explain", "Explain a rule: why it is slow, what to do, when it is wrong."),
    "rules": ("explain", "List the rules, all or of one family."),
    "doctor": ("doctor", "Check what can be measured on this machine."),
    "schema": ("schemas.printed_schema", "Print the JSON Schema of a report, a comparison or another JSON document."),
    "bundle": ("bundle", "Pack a run into one file to share."),
    "demo": ("demo.demo", "Show the screen with a recorded job: no PyTorch needed, nothing is trained."),
    "completion": ("completion", "Print a script that completes our commands in bash, zsh or fish."),
}

EXIT_CODES = """\b
Exit codes: `run` ends exactly as the job does. Otherwise 0, or
   1  something failed            70  a bug in rn50-advisor
   2  not a readable run          78  a bad configuration
   3  compare, ci, bench: slower 126  the job's command cannot be executed
      than --max-regression      127  the job's command was not found
      allows; fleet: an outlier;
      triage: fix a setting
   4  compare, ci: not comparable;
      triage: replace it
  64  wrong usage                 77  try: writes not held back
"""


class Commands(click.Group):
    """Imports a command when it is called, not before."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"rn50_advisor.advisor.commands.{COMMANDS[cmd_name][0]}")
        command: click.Command = getattr(module, f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-") and not ctx.resilient_parsing:
            raise UsageError(f"No such command {name!r}.", _likely_command(args))
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        from click.shell_completion import CompletionItem

        fitting = [
            CompletionItem(name, help=about) for name, (_, about) in COMMANDS.items() if name.startswith(incomplete)
        ]
        return [*fitting, *click.Command.shell_complete(self, ctx, incomplete)]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, summary) for name, (_, summary) in COMMANDS.items()])


def _show_version(ctx: click.Context, _param: click.Parameter, wanted: bool) -> None:
    """Unlike click's own, this one looks the version up only where it is shown."""
    if wanted and not ctx.resilient_parsing:
        click.echo(f"{PROGRAM} {advisor.__version__}")
        ctx.exit()


@click.group(
    cls=Commands, epilog=EXIT_CODES, context_settings={"help_option_names": ["-h", "--help"]}, no_args_is_help=False
)
@click.option(
    "--version",
    is_flag=True,
    expose_value=False,
    is_eager=True,
    callback=_show_version,
    help="Show the version and exit.",
)
def cli() -> None:
    """Runs an unmodified PyTorch training job and says what holds it back, on which rank, why, and what to change.

    \b
    rn50-advisor run -- torchrun --nproc_per_node=2 train.py
    rn50-advisor report latest --format html -o report.html

    Without a command, on a terminal: the list of runs.
    """


def _likely_command(words: Sequence[str]) -> str:
    """Returns a hint at what was meant: a command like the first word, or `run --` before the job's own command line."""
    if suggestion := did_you_mean(words[0], COMMANDS):
        return suggestion
    if shutil.which(words[0]) or Path(words[0]).is_file() or any(word.endswith(".py") for word in words):
        return f"to run and watch it: {PROGRAM} run -- {shlex.join(words)}"
    return f"{PROGRAM} --help lists the commands"


def main(argv: Sequence[str] | None = None) -> None:
    """The console script. Always ends in SystemExit, or by the signal that killed the job."""
    use_plain_glyphs()
    gc.set_threshold(COLLECT_AFTER)
    sys.exit(_outcome(sys.argv[1:] if argv is None else list(argv)))


def _outcome(argv: list[str]) -> int:
    try:
        return _invoke(argv)
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - the last wall: nobody should meet a traceback they cannot act on
        if isinstance(error, OSError):
            _give_up_stdout()
        message, hint, exit_code = _described(error)
        return _complain(message, hint, exit_code, error) if message else exit_code


def _invoke(argv: list[str]) -> int:
    if COMPLETION_VARIABLE in os.environ:
        cli.main(prog_name=PROGRAM)
    if not argv:
        if not has_terminal():
            raise UsageError("no command given", f"{PROGRAM} --help lists the commands")
        argv = ["runs"]
    if argv[0] in _UNPACK:
        for number in {signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGTERM)}:  # reports are read on Windows, too
            if signal.getsignal(number) == signal.SIG_DFL:
                signal.signal(number, _end)
    try:
        # not cli.main, which exits with 1 on a closed output before we can handle it
        with cli.make_context(PROGRAM, argv) as context:
            cli.invoke(context)
    except click.exceptions.Exit as end:
        return end.exit_code
    if sys.stdout is not None:
        sys.stdout.flush()
    return 0


def _end(number: int, _: object) -> None:
    """Removes unpacked bundles and exits with the code that shells report for a death by this signal."""
    sys.exit(128 + number)


def _described(error: BaseException) -> tuple[str, str, int]:
    """Returns the message, hint and exit code for an error; the message is empty if nobody can read it."""
    match error:
        case AdvisorError():
            return error.message, error.hint, error.exit_code
        case click.UsageError():
            name = error.ctx.command_path if error.ctx else PROGRAM
            return error.format_message(), f"{name} --help", UsageError.exit_code
        case KeyboardInterrupt() | click.Abort():
            return "interrupted", "", INTERRUPTED
        case BrokenPipeError():
            return "", "", OUTPUT_CLOSED
        case OSError():
            name = f"{error.filename}: " if error.filename else ""
            return f"{name}{error.strerror or error}", "", AdvisorError.exit_code
    return (
        f"{type(error).__name__}: {error}",
        f"this is a bug in rn50-advisor; {DEBUG_VARIABLE}=1 shows where",
        INTERNAL_ERROR,
    )


def _give_up_stdout() -> None:
    """Sends stdout to /dev/null, since the interpreter flushes it again at exit and would report the error itself."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # AttributeError: there is no stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _complain(message: str, hint: str, exit_code: int, error: BaseException) -> int:
    from rn50_advisor.advisor.report.inert_text import one_line

    if os.environ.get(DEBUG_VARIABLE) not in (None, "", "0"):
        import traceback

        traceback.print_exception(error)
    with contextlib.suppress(OSError, ValueError):
        click.echo(f"{PROGRAM}: {one_line(message, 1000)}", err=True)
        if hint:
            click.echo(f"  hint: {one_line(hint, 500)}", err=True)
    return exit_code


if __name__ == "__main__":
    main()
