"""Options and arguments that several commands share, with the same name and meaning everywhere."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import click

from rn50_advisor.advisor.commands.completion import complete_run

Command = TypeVar("Command", bound=Callable[..., object])


def run_dir(command: Command) -> Command:
    return click.option(
        "--run-dir",
        type=click.Path(path_type=Path, file_okay=False),
        default="runs",
        show_default=True,
        envvar="RN50_ADVISOR_RUN_DIR",
        show_envvar=True,
        help="The folder that holds the runs.",
    )(command)


def config(command: Command) -> Command:
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar="RN50_ADVISOR_CONFIG",
        show_envvar=True,
        help="A TOML file with thresholds. Without it: [tool.rn50-advisor] of pyproject.toml in the working directory.",
    )(command)


def which_run(command: Command) -> Command:
    return click.argument("run", metavar="RUN", default="latest", shell_complete=complete_run)(command)
