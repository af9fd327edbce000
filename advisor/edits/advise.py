"""Turns a fix's request for a call into a diff of the job's own files or into the option to pass; else the fix stays unchanged."""

from __future__ import annotations

import ast
import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from rn50_advisor.advisor.edits.calls import find_call, find_settings, options_of_settings
from rn50_advisor.advisor.edits.edit_plan import UNKNOWN_VALUE, EditPlan
from rn50_advisor.advisor.edits.syntax import Code, parse_code
from rn50_advisor.advisor.model.job_changes import CallChange, Expression, Value
from rn50_advisor.advisor.model.recording import Source

MASKED = "***"  # replaces a secret: lines with it differ from the user's file
_CONTEXT_LINES = 3


def unified(before: str, after: str, name: str) -> str | None:
    """Returns a unified diff for `patch` and `git apply`; None if nothing differs or if a changed line contains a masked secret."""
    old, new = _lines(before), _lines(after)
    for context in range(_CONTEXT_LINES, -1, -1):
        made = list(difflib.unified_diff(old, new, f"a/{name}", f"b/{name}", n=context, lineterm="\n"))
        body = made[2:]
        if not body or any(MASKED in line for line in body if line[0] in "+-"):
            return None
        if not any(MASKED in line for line in body):
            return "".join([*made[:2], *(_ended(line) for line in body)])
    return None


def shown_name(path: str, folder: str) -> str:
    """Returns the path relative to the job's working directory if the file is inside it; else the whole path without the root."""
    whole = PurePosixPath(path)
    return str(whole.relative_to(folder)) if folder and whole.is_relative_to(folder) else path.lstrip("/")


def _lines(text: str) -> list[str]:
    """Splits into lines with their ends. Not `splitlines`, which also breaks at form feeds and separators."""
    parts = text.split("\n")
    return [f"{part}\n" for part in parts[:-1]] + ([parts[-1]] if parts[-1] else [])


def _ended(line: str) -> str:
    return line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


@dataclass(frozen=True, slots=True)
class JobCommands:
    """The job's command lines as words, and the folder it was started in."""

    argv: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """An edit. `words`: steps that the diff does not cover, or that replace it; `options`: those words that name an option of the job;
    `typed`: these options as one types them.
    """

    diff: str | None
    words: tuple[str, ...] = ()
    options: tuple[str, ...] = ()
    typed: tuple[str, ...] = ()


def advise(
    change: CallChange,
    *,
    file: str,
    line: int,
    known: Mapping[str, Value],
    through: str = "",
    sources: Sequence[Source],
    job: JobCommands,
) -> Advice | None:
    """Returns the edit for a request; None if it cannot improve on the fix's own text.

    `known`: the values of the arguments when the job ran. `through`: the function of an installed package between this line and the
    requested call.
    """
    codes = [code for source in sources if not source.edited and (code := parse_code(source.path, source.text))]
    code = next((c for c in codes if c.path == file), None)
    literals = {name: value for name, value in change.arguments if not isinstance(value, Expression)}
    wanted = {name: value for name, value in literals.items() if known.get(name, UNKNOWN_VALUE) != value}
    # a file may lack the names that an expression uses
    if code is None or not wanted or len(literals) < len(change.arguments):
        return None
    call = find_call(code, line, change.callable, through_package=bool(through), wanted=wanted)
    if call is None and change.callable == "DataLoader" and through.startswith("transformers."):
        call = find_settings(code)
        if call is None and (flags := options_of_settings(code, wanted)):
            words = tuple(f"pass {flag}" for flag in flags)
            return Advice(None, words, words, flags)
    if call is None or (set(wanted) == {"persistent_workers"} and _in_a_loop(code, call.node)):
        return None  # a loader that is created in each epoch would still end its workers
    if call.spread is None:
        return Advice(None, (f"its arguments come from `{call.stars}` there",))
    plan = EditPlan(code, call, known=known, others=[c for c in codes if c is not code], argv=job.argv)
    diff = _diff(plan, codes, job.folder) if plan.make(wanted, without=change.without) else None
    return Advice(diff, tuple(plan.words), tuple(plan.options), tuple(plan.typed)) if diff or plan.words else None


def _in_a_loop(code: Code, node: ast.AST) -> bool:
    inner = node
    for around in code.around(node):
        # a loop's iterable is created only once
        if isinstance(around, ast.While) or (isinstance(around, (ast.For, ast.AsyncFor)) and inner is not around.iter):
            return True
        inner = around
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return False
    return False


def _diff(plan: EditPlan, codes: Sequence[Code], folder: str) -> str | None:
    from rn50_advisor.advisor.edits.rewrite import rewritten  # libcst takes 0.2 s to import  # noqa: PLC0415

    parts = []
    for code in codes:
        changes = plan.changes(code)
        if not changes:
            continue
        after = rewritten(code, changes)
        part = unified(code.text, after, shown_name(code.path, folder)) if after is not None else None
        if part is None:
            return None
        parts.append(part)
    return "".join(parts) or None
