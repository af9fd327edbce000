"""Options of several commands: on the command line, from the environment, and by default."""

from __future__ import annotations

from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from rn50_advisor.advisor.commands import common_options


@click.command
@common_options.which_run
@common_options.run_dir
@common_options.config
def print_options(run: str, run_dir: Path, config: Path | None) -> None:
    click.echo(f"{run} {run_dir!r} {config!r}")


@pytest.mark.parametrize(
    ("arguments", "environment", "said"),
    [
        ([], {}, ("latest", Path("runs"), None)),
        (["first", "--run-dir", "a", "--config", "b.toml"], {}, ("first", Path("a"), Path("b.toml"))),
        ([], {"RN50_ADVISOR_RUN_DIR": "e", "RN50_ADVISOR_CONFIG": "e.toml"}, ("latest", Path("e"), Path("e.toml"))),
        (["--run-dir", "a"], {"RN50_ADVISOR_RUN_DIR": "e"}, ("latest", Path("a"), None)),
    ],
)
def test_the_command_line_goes_before_the_environment(
    arguments: list[str], environment: dict[str, str], said: tuple[str, Path, Path | None]
) -> None:
    unset = dict.fromkeys(("RN50_ADVISOR_RUN_DIR", "RN50_ADVISOR_CONFIG"))
    done = CliRunner().invoke(print_options, arguments, env={**unset, **environment})
    assert done.output == f"{said[0]} {said[1]!r} {said[2]!r}\n"


@pytest.mark.parametrize(("option", "is_file"), [("--run-dir", True), ("--config", False)])
def test_a_file_is_no_folder_of_runs_and_a_folder_no_configuration(option: str, is_file: bool, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong"
    wrong.touch() if is_file else wrong.mkdir()
    assert CliRunner().invoke(print_options, [option, str(wrong)]).exit_code == 2
