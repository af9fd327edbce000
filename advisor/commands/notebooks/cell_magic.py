"""`%%rn50_advisor`: records the training in a notebook's cell and shows the report below it."""

from __future__ import annotations

import argparse
import ast
import shlex
import sys
from importlib import import_module
from types import CodeType
from typing import Any, NoReturn

from rn50_advisor.advisor.commands.notebooks.watching import Watching

MAGIC = "rn50_advisor"


class _Wrong(Exception):
    """The magic's own line cannot be read."""


class _Options(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Wrong(message)


def register(shell: Any) -> None:
    """Makes `%%rn50_advisor [--name NAME] [--run-dir DIR]` known to this shell."""

    def rn50_advisor(line: str, cell: str) -> None:
        """Record the training in this cell and show what holds it back."""
        run_cell(shell, line, cell)

    shell.register_magic_function(rn50_advisor, magic_kind="cell", magic_name=MAGIC)


def run_cell(shell: Any, line: str, cell: str) -> None:
    """Raises what the cell raises, after the report has been shown; UsageError of IPython where the line cannot be read."""
    options = _Options(prog=f"%%{MAGIC}", add_help=False)
    options.add_argument("--name", default="")
    options.add_argument("--run-dir", default=None)
    try:
        given = options.parse_args(_words(line))
    except _Wrong as wrong:
        raise import_module("IPython.core.error").UsageError(
            f"%%{MAGIC} [--name NAME] [--run-dir DIR]: {wrong}"
        ) from None
    body, shown = _compiled(shell, cell)
    watch = Watching(name=given.name, run_dir=given.run_dir)
    try:
        with watch:
            exec(body, shell.user_ns)
            if shown is not None:
                sys.displayhook(eval(shown, shell.user_ns))
    finally:
        if watch.watched.run is not None:
            import_module("IPython.display").display(watch.watched)


def _words(line: str) -> list[str]:
    try:
        return shlex.split(line)
    except ValueError as error:
        raise _Wrong(str(error)) from None


def _compiled(shell: Any, cell: str) -> tuple[CodeType, CodeType | None]:
    """The cell as the shell runs any cell, under a name whose lines can be looked up; its last expression apart."""
    source = shell.transform_cell(cell)
    name = shell.compile.cache(source, shell.execution_count, raw_code=cell)
    tree = shell.transform_ast(shell.compile.ast_parse(source, filename=name))
    last = (
        tree.body.pop()
        if tree.body and isinstance(tree.body[-1], ast.Expr) and not cell.rstrip().endswith(";")
        else None
    )
    body = shell.compile(tree, name, "exec")
    return body, shell.compile(ast.Expression(last.value), name, "eval") if last is not None else None
