"""`completion`: prints the script with which a shell completes our command line, and knows what can be completed.

What completes runs while a user waits for the Tab key: it imports no rule and reads no run, and a failure completes nothing.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rn50_advisor.advisor.model.errors import UsageError

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

COMPLETION_VARIABLE = "_RN50_ADVISOR_COMPLETE"  # click's name: set by a shell that wants completions
SHELLS = ("bash", "zsh", "fish")
# What the letters of our rules' ids stand for.
FAMILIES = {
    "CMP": "compute",
    "COM": "communication",
    "CPU": "host CPUs",
    "DAT": "data loading",
    "DSK": "disks",
    "GPU": "GPU clocks, memory and errors",
    "H2D": "copies to the GPU",
    "LOP": "training loop",
    "MEM": "host memory",
    "RUN": "failures and changes of a run",
}
_RULE = re.compile(r"([a-z][a-z0-9]{2}\d{3})_\w+")
_SAFE = re.compile(r"[\w.+-]+")  # the shell would expand or split other names


@click.command
@click.argument("shell", required=False, type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str | None) -> None:
    """Print a script for bash, zsh or fish (default: $SHELL) that completes commands, options, rules and runs.

    \b
    eval "$(rn50-advisor completion bash)"      in ~/.bashrc (bash 4.4 or newer)
    eval "$(rn50-advisor completion zsh)"       in ~/.zshrc, after compinit
    rn50-advisor completion fish > ~/.config/fish/completions/rn50-advisor.fish
    """
    from click.shell_completion import get_completion_class

    shell = shell or Path(os.environ.get("SHELL", "")).name
    made_for = get_completion_class(shell) if shell in SHELLS else None
    if made_for is None:
        raise UsageError(f"no completion for {shell or 'an unknown shell'}", f"name one of {', '.join(SHELLS)}")
    root = context.find_root()
    source = made_for(root.command, {}, root.info_name or "rn50-advisor", COMPLETION_VARIABLE).source()
    # click's script for fish ends a description at its first comma.
    click.echo(source.replace('string split "," ', 'string split --max 1 "," '))


def complete_run(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Names of runs, newest first, and files: a run may also be given as a path."""
    from rn50_advisor.advisor.store.run_folders import LATEST, list_runs

    names = [LATEST]
    with contextlib.suppress(Exception):
        names += [run.name for run in list_runs(given_run_dir(context))]
    return [*_files(incomplete), *_items(((name, "") for name in names), incomplete)]


def complete_rule(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    with contextlib.suppress(Exception):
        return _items(_rules(), incomplete.upper())
    return []


def complete_family(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Families, then rules once more than a family's letters were typed."""
    with contextlib.suppress(Exception):
        return _items(
            _rules() if incomplete.upper() in FAMILIES or len(incomplete) > 3 else iter(FAMILIES.items()),
            incomplete.upper(),
        )
    return []


def complete_job(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Files, and for the job's first word the programs on PATH."""
    found = _files(incomplete)
    if incomplete and "/" not in incomplete and not context.params.get("command"):
        programs = sorted({name for place in os.get_exec_path() for name in _names_in(place)})
        found += _items(((name, "") for name in programs), incomplete)
    return found


def complete_file(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    return _files(incomplete)


def given_run_dir(context: click.Context) -> Path:
    """The folder of runs that was given to this command or the one above it (`runs --run-dir D rm`), else the usual one."""
    chain = [each for each in (context, context.parent) if each is not None and each.params.get("run_dir") is not None]
    for each in chain:
        if each.get_parameter_source("run_dir") is click.core.ParameterSource.COMMANDLINE:
            return Path(each.params["run_dir"])
    return Path(chain[0].params["run_dir"] if chain else "runs")


def _rules() -> Iterator[tuple[str, str]]:
    """Ids of our rules, by the names of their modules, and the rules' names: each module's first line."""
    from rn50_advisor import rules

    for place in rules.__path__:
        for file in sorted(Path(place).glob("*/*.py"), key=lambda file: file.name):
            if found := _RULE.fullmatch(file.stem):
                with file.open(encoding="utf-8") as source:
                    yield found[1].upper(), source.readline().strip().strip('".')


def _names_in(place: str) -> list[str]:
    try:
        return os.listdir(place)  # noqa: PTH208 - names only
    except OSError:
        return []


def _items(names: Iterator[tuple[str, str]], incomplete: str) -> list[CompletionItem]:
    from click.shell_completion import CompletionItem

    fitting = ((name, about) for name, about in names if name.startswith(incomplete) and _SAFE.fullmatch(name))
    return [CompletionItem(name, help=about or None) for name, about in fitting]


def _files(incomplete: str) -> list[CompletionItem]:
    """Asks the shell for files. It has to stand first: click's script for bash forgets what stands before it."""
    from click.shell_completion import CompletionItem

    return [CompletionItem(incomplete, type="file")]
