"""Turns what a fix asks of a call into a diff of the job's own files, or into the option to pass; else the fix stays as it was."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rn50_advisor.advisor.edits.calls import find_call, find_settings, options_of_settings
from rn50_advisor.advisor.edits.edit_plan import UNSEEN, Plan
from rn50_advisor.advisor.edits.fix_request import Request, Value
from rn50_advisor.advisor.edits.syntax import Code, parse_code
from rn50_advisor.advisor.edits.unified_diff import shown_name, unified
from rn50_advisor.advisor.model.recording import Source


@dataclass(frozen=True, slots=True)
class Job:
    """What is known besides the code: words of the command lines, and the folder the job was started in."""

    argv: tuple[str, ...] = ()
    folder: str = ""


@dataclass(frozen=True, slots=True)
class Advice:
    """`words`: what to do where the diff does not do it, or instead of it."""

    diff: str | None
    words: tuple[str, ...] = ()


def advise(
    request: Request,
    *,
    file: str,
    line: int,
    known: Mapping[str, Value],
    through: str = "",
    sources: Sequence[Source],
    job: Job,
) -> Advice | None:
    """None where nothing better can be said than the fix already does.

    `known`: what the arguments were when the job ran. `through`: the function of an installed package that called, between this line and
    the call that is meant.
    """
    codes = [code for source in sources if not source.edited and (code := parse_code(source.path, source.text))]
    code = next((c for c in codes if c.path == file), None)
    wanted = {name: value for name, value in request.arguments.items() if known.get(name, UNSEEN) != value}
    if code is None or not wanted:
        return None
    call = find_call(code, line, request.call, through_package=bool(through), wanted=wanted)
    if call is None and request.call == "DataLoader" and through.startswith("transformers."):
        call = find_settings(code)
        if call is None and (flags := options_of_settings(code, wanted)):
            return Advice(None, flags)
    if call is None or (set(wanted) == {"persistent_workers"} and _in_a_loop(code, call.node)):
        return None  # made anew in each epoch, a loader would still end its workers
    if call.spread is None:
        return Advice(None, (f"its arguments come from `{call.stars}` there",))
    plan = Plan(code, call, known=known, others=[c for c in codes if c is not code], argv=job.argv)
    diff = _diff(plan, codes, job.folder) if plan.make(wanted) else None
    return Advice(diff, tuple(plan.words)) if diff or plan.words else None


def _in_a_loop(code: Code, node: ast.AST) -> bool:
    inner = node
    for around in code.around(node):
        # what a loop runs over is made once
        if isinstance(around, ast.While) or (isinstance(around, (ast.For, ast.AsyncFor)) and inner is not around.iter):
            return True
        inner = around
        if isinstance(around, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda, ast.ClassDef)):
            return False
    return False


def _diff(plan: Plan, codes: Sequence[Code], folder: str) -> str | None:
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
