"""Shells complete commands, options, rules and runs, without reading a run or importing a rule."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from rn50_advisor.advisor import cli
from rn50_advisor.advisor.commands.completion import COMPLETION_VARIABLE, SHELLS
from rn50_advisor.advisor.model.errors import UsageError

NEW, OLD = "20250101-000500-fast", "20250101-000000-slow"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("RN50_ADVISOR_RUN_DIR", raising=False)
    for name in (NEW, OLD, "20250101-000600-a b"):  # the last would be two words
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "run.sqlite").write_bytes(b"")


def completed(line: str) -> list[str]:
    """What a shell gets for the last word of a line, as `type,value`."""
    words = {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)}
    done = CliRunner().invoke(
        cli.cli,
        [],
        prog_name=cli.PROGRAM,
        env={**words, COMPLETION_VARIABLE: "bash_complete"},
        complete_var=COMPLETION_VARIABLE,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("rn50-advisor rep", ["plain,report"]),
        ("rn50-advisor --ver", ["plain,--version"]),
        ("rn50-advisor report --form", ["plain,--format"]),
        ("rn50-advisor report --format h", ["plain,html"]),
        ("rn50-advisor explain dat00", [f"plain,DAT{number:03d}" for number in range(1, 10)]),
        ("rn50-advisor rules d", ["plain,DAT", "plain,DSK"]),
        ("rn50-advisor rules com00", [f"plain,COM{number:03d}" for number in range(1, 10)]),
        ("rn50-advisor report 2025", ["file,2025", f"plain,{NEW}", f"plain,{OLD}"]),
        ("rn50-advisor watch la", ["file,la", "plain,latest"]),
        ("rn50-advisor compare latest 20250101-0000", ["file,20250101-0000", f"plain,{OLD}"]),
        ("rn50-advisor runs r", ["plain,rm"]),
        ("rn50-advisor runs rm 20250101-0000", ["file,20250101-0000", f"plain,{OLD}"]),
        ("rn50-advisor runs --run-dir none rm 2025", ["file,2025"]),
        ("rn50-advisor report --run-dir none 2025", ["file,2025"]),
        ("rn50-advisor run --report re", ["file,re"]),
        ("rn50-advisor run -- python tr", ["file,tr"]),
        ("rn50-advisor completion f", ["plain,fish"]),
    ],
)
def test_the_last_word_of_a_line_is_completed(line: str, found: list[str]) -> None:
    assert completed(line) == found


def test_the_jobs_first_word_is_a_program_or_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "torchrun").write_text("")
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/nowhere")
    assert completed("rn50-advisor run -- torchr") == ["file,torchr", "plain,torchrun"]
    assert completed("rn50-advisor run --name x torchr") == ["file,torchr", "plain,torchrun"]


def test_all_commands_are_offered_without_importing_them() -> None:
    code = (
        "import sys\nfrom rn50_advisor.advisor.cli import main\n"
        "try:\n    main([])\nexcept SystemExit as end:\n    assert not end.code\n"
        "print([name for name in ('numpy', 'rich', 'rn50_advisor.advisor.commands.bench') if name in sys.modules])"
    )
    words = {"COMP_WORDS": "rn50-advisor ", "COMP_CWORD": "1", COMPLETION_VARIABLE: "bash_complete"}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, **words},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines() == [*(f"plain,{name}" for name in cli.COMMANDS), "[]"]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_shell_gets_a_script(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = CliRunner().invoke(cli.cli, ["completion", shell], prog_name=cli.PROGRAM)
    assert given.exit_code == 0 and COMPLETION_VARIABLE in given.stdout and "rn50-advisor" in given.stdout
    monkeypatch.setenv("SHELL", f"/usr/bin/{shell}")
    assert CliRunner().invoke(cli.cli, ["completion"], prog_name=cli.PROGRAM).stdout == given.stdout


def described(line: str, shell: str) -> dict[str, str]:
    """What stands beside each word that zsh or fish offers."""
    words = {
        "COMP_WORDS": line,
        "COMP_CWORD": line.rsplit(" ", maxsplit=1)[-1] if shell == "fish" else str(len(line.split(" ")) - 1),
    }
    done = CliRunner().invoke(
        cli.cli,
        [],
        prog_name=cli.PROGRAM,
        env={**words, COMPLETION_VARIABLE: f"{shell}_complete"},
        complete_var=COMPLETION_VARIABLE,
    )
    if shell == "fish":
        rows = [line.split(",", 1)[1].split("\t") for line in done.stdout.splitlines()]
        return {row[0]: row[1] for row in rows if len(row) > 1}
    lines = done.stdout.splitlines()
    return dict(zip(lines[1::3], lines[2::3], strict=True))


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_descriptions_are_whole_and_rules_have_their_names(shell: str) -> None:
    rules = described("rn50-advisor explain DAT00", shell)
    assert rules["DAT003"] == "Data loading: no workers"
    assert described("rn50-advisor rules C", shell)["CMP"] == "compute"
    parts = {**described("rn50-advisor runs ", shell), **described("rn50-advisor ", shell)}
    assert {"list", "rm", "path", "compare"} <= set(parts)
    assert {name for name, about in parts.items() if about.endswith("...")} == set()


def test_fish_shows_descriptions_beyond_their_first_comma() -> None:
    assert (
        'string split --max 1 ","' in CliRunner().invoke(cli.cli, ["completion", "fish"], prog_name=cli.PROGRAM).stdout
    )


@pytest.mark.parametrize("usual", ["/bin/tcsh", ""])
def test_another_shell_is_refused(usual: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHELL", usual)
    error = CliRunner().invoke(cli.cli, ["completion"]).exception
    assert isinstance(error, UsageError) and "bash, zsh, fish" in error.hint


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_bash_completes_with_its_script(tmp_path: Path) -> None:
    program = tmp_path / "rn50-advisor"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m rn50_advisor.advisor.cli "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(rn50-advisor completion bash)"\n'
        "COMP_WORDS=(rn50-advisor runs rm 2025); COMP_CWORD=3\n"
        "_rn50_advisor_completion rn50-advisor 2>/dev/null\n"  # compopt complains outside of a completion
        'printf "%s\\n" "${COMPREPLY[@]}"; complete -p rn50-advisor\n'
    )
    path = f"{tmp_path}:{os.environ['PATH']}"
    command = ["bash", "--norc", "-c", script]
    done = subprocess.run(
        command, env={**os.environ, "PATH": path}, capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines()[:2] == [NEW, OLD]
    assert "-F _rn50_advisor_completion rn50-advisor" in done.stdout
