"""Every command can be had, and every error is one line and an exit code of its own."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import click
import pytest

from rn50_advisor import advisor
from rn50_advisor.advisor import cli
from rn50_advisor.advisor.model.errors import ConfigError, NotARun


def ended(*argv: str) -> int:
    with pytest.raises(SystemExit) as end:
        cli.main(argv)
    assert isinstance(end.value.code, int)
    return end.value.code


def failing(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> int:
    """The exit code where a command raises this."""

    def fail() -> None:
        raise error

    monkeypatch.setattr(cli.Commands, "get_command", lambda *_: click.Command("fails", callback=fail))
    return ended("fails")


@pytest.mark.parametrize("name", cli.COMMANDS)
def test_every_command_listed_is_there_and_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert ended(name, "--help") == 0
    assert f"{cli.PROGRAM} {name}" in capsys.readouterr().out


def test_help_lists_the_commands_with_one_line_each_and_the_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--help") == 0
    shown = capsys.readouterr().out
    for name, (_, summary) in cli.COMMANDS.items():
        assert name in shown and " ".join(summary.split()[:4]) in shown
    assert "126  the job's command cannot be executed" in shown


def test_the_version_is_that_of_the_package(capsys: pytest.CaptureFixture[str]) -> None:
    assert ended("--version") == 0
    assert capsys.readouterr().out == f"rn50-advisor {advisor.__version__}\n"


def test_the_command_collects_garbage_rarely_and_its_job_as_ever(tmp_path: Path) -> None:
    """Importing the screen makes hundreds of thousands of objects, none of which is garbage."""
    ask = "import gc; print('collects after', gc.get_threshold()[0])"
    own = f"import sys; from rn50_advisor.advisor import cli\ntry: cli.main(['--version'])\nexcept SystemExit: {ask}"
    usual, command = (subprocess.check_output([sys.executable, "-c", text], text=True) for text in (ask, own))
    assert "collects after 20000" in command and "20000" not in usual
    run = [
        sys.executable,
        "-m",
        "rn50_advisor",
        "run",
        "--no-tui",
        "--run-dir",
        str(tmp_path),
        "--",
        sys.executable,
        "-c",
        ask,
    ]
    assert usual in subprocess.check_output(run, text=True, stderr=subprocess.DEVNULL)


def test_no_job_waits_for_the_version_to_be_looked_up() -> None:
    modules = "rn50_advisor.advisor.cli, rn50_advisor.advisor.commands.run, rn50_advisor.advisor.run.launch.launcher"
    program = f"import {modules}; print('__version__' in vars(rn50_advisor.advisor), rn50_advisor.advisor.__version__)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == f"False {advisor.__version__}\n"


@pytest.mark.parametrize(
    ("argv", "code", "says"),
    [
        ((), 64, "no command given"),
        (("trian",), 64, "No such command 'trian'"),
        (("reprot", "latest"), 64, "did you mean report?"),
        (("sh", "train.sh", "a b"), 64, "rn50-advisor run -- sh train.sh 'a b'"),
        (("mylauncher", "-n", "2", "train.py"), 64, "rn50-advisor run -- mylauncher -n 2 train.py"),
        (("frobnicate",), 64, "rn50-advisor --help lists the commands"),
        (("--verison",), 64, "--version"),
        (("report", "--formt", "json"), 64, "--format"),
        (("report", "--colour"), 64, "No such option"),
        (("report", "/none/there"), 2, "is not a run"),
        (("explain", "DAT03"), 64, "did you mean DAT0"),
    ],
)
def test_what_makes_no_sense_is_one_line_and_a_hint(
    argv: tuple[str, ...], code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(*argv) == code
    shown = capsys.readouterr()
    assert shown.out == "" and says in shown.err
    message, hint = shown.err.splitlines()
    assert message.startswith("rn50-advisor: ") and hint.startswith("  hint: ")


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (NotARun("damaged", "record again"), 2, "rn50-advisor: damaged\n  hint: record again\n"),
        (ConfigError("no such threshold"), 78, "rn50-advisor: no such threshold\n"),
        (KeyboardInterrupt(), 130, "rn50-advisor: interrupted\n"),
        (click.Abort(), 130, "rn50-advisor: interrupted\n"),
        (OSError(errno.ENOSPC, "No space left", "/x"), 1, "rn50-advisor: /x: No space left\n"),
        (
            ZeroDivisionError("by\nzero\x1b[31m"),
            70,
            "rn50-advisor: ZeroDivisionError: by zero\n"
            "  hint: this is a bug in rn50-advisor; RN50_ADVISOR_DEBUG=1 shows where\n",
        ),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_ends_with_its_own_code(
    error: BaseException,
    code: int,
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.delenv(cli.DEBUG_VARIABLE, raising=False)
    monkeypatch.setattr(cli, "_give_up_stdout", lambda: None)  # this process goes on to use its own
    assert failing(error, monkeypatch) == code
    assert capsys.readouterr().err == says


def test_nothing_is_written_to_a_reader_that_went_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli, "_give_up_stdout", lambda: None)
    assert failing(BrokenPipeError(errno.EPIPE, "Broken pipe"), monkeypatch) == 141
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(("debug", "traced"), [("1", True), ("0", False)])
def test_a_traceback_is_shown_to_those_who_ask(
    debug: str, traced: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(cli.DEBUG_VARIABLE, debug)
    assert failing(ValueError("odd"), monkeypatch) == 70
    assert ("Traceback" in capsys.readouterr().err) == traced
