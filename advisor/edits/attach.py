"""Adds diffs to the fixes of findings, or words where a diff is impossible. A pure function of findings, facts and kept sources."""

from __future__ import annotations

import ast
import functools
import posixpath
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rn50_advisor.advisor.edits.advise import Advice, JobCommands, advise
from rn50_advisor.advisor.edits.kept_tensors import LOOPS, kept_in_steps
from rn50_advisor.advisor.edits.syntax import Code, is_literal, last_name, literal, parse_code
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding, Fix, Where
from rn50_advisor.advisor.model.job_changes import (
    Argument,
    Assignment,
    CallChange,
    GradientsKept,
    Invocation,
    NumbersKept,
    PaddedToLongest,
    Setup,
    ShrinkFirst,
    Value,
)
from rn50_advisor.advisor.model.measures.host_measures import THREADS_INTRA_OP
from rn50_advisor.advisor.model.recording import Source

_SPLIT_FIRST = "an IterableDataset gives every worker all samples: split them by get_worker_info() first"
# Other calls that make the same setting, and arguments of frameworks that do.
_OTHER_NAMES: Mapping[str, tuple[str, ...]] = {
    "set_detect_anomaly": ("detect_anomaly",),
    "set_default_dtype": ("double",),
    "sched_setaffinity": ("cpu_affinity",),
    "gradient_checkpointing_disable": ("gradient_checkpointing_enable", "set_grad_checkpointing"),
}
_ARGUMENTS: Mapping[str, str] = {
    "set_detect_anomaly": "detect_anomaly",
    "gradient_checkpointing_disable": "gradient_checkpointing",
}
# Where none of these is called, torch takes its number of threads from these variables.
_VARIABLES_OF = {"set_num_threads": ("OMP_NUM_THREADS", "MKL_NUM_THREADS")}
# Arguments of Hugging Face's tokenizers and collators, of today and before.
_PADS_TO_ONE_LENGTH: Mapping[str, Value] = {"padding": "max_length", "pad_to_max_length": True}
_KEPT_SHOWN = 3  # statements
_FACTS_OF: Mapping[str, str] = {
    "DataLoader": "loaders",
    "DistributedDataParallel": "ddp",
    "Embedding": "tables",
    "EmbeddingBag": "tables",
}


def with_edits(findings: Iterable[Finding], analysis: Analysis, sources: Sequence[Source]) -> tuple[Finding, ...]:
    """Returns the findings with edits; a fix stays unchanged if no edit fits its place or call."""
    if not sources:
        return tuple(findings)
    kept = tuple(sources)
    return tuple(replace(f, fixes=tuple(_edited(fix, analysis, kept) for fix in f.fixes)) for f in findings)


def _edited(fix: Fix, analysis: Analysis, sources: tuple[Source, ...]) -> Fix:
    call, where = fix.call, fix.where
    if isinstance(call, (NumbersKept, GradientsKept, PaddedToLongest, ShrinkFirst)):
        return _at_its_pattern(fix, call, sources)
    if where is None and isinstance(call, CallChange):
        return _at_its_call(fix, call, analysis, sources)
    if where is None or isinstance(call, Setup):
        return _at_its_place(fix, analysis, sources)
    if not isinstance(call, CallChange) or call.callable not in _FACTS_OF:
        return fix
    entry, rank = _entry(analysis, _FACTS_OF[call.callable], where.file, where.line)
    if (original := _made_of(entry, rank)) is not None:
        entry, where = original, Where(str(original["file"]), int(original["line"]))
    job = _commands(analysis, rank)
    if (instead := _instead(entry, dict(call.arguments))) is not None:
        return replace(fix, change=f"{fix.change}\n{instead}", where=where)
    request = _Request(
        call=call,
        file=posixpath.normpath(posixpath.join(job.folder, where.file)),
        line=where.line,
        known=tuple((name, entry[name]) for name, _ in call.arguments if _plain(entry, name)),
        through=str(entry.get("through") or ""),
        sources=sources,
        job=job,
    )
    return _advised(fix, where, request)


def _commands(analysis: Analysis, rank: Mapping[str, Any]) -> JobCommands:
    words = (*analysis.meta.argv, *map(str, rank.get("argv") or ()))
    return JobCommands(words, str(rank.get("cwd") or analysis.meta.cwd))


def _advised(fix: Fix, where: Where, request: _Request) -> Fix:
    advice = _advice(request)
    if advice is None:
        return replace(fix, where=where)
    change = "\n".join([fix.change, *advice.words])
    return replace(fix, change=change, diff=advice.diff, where=where, options=advice.options, typed=advice.typed)


@dataclass(frozen=True, slots=True)
class _Request:
    call: CallChange
    file: str
    line: int
    known: tuple[tuple[str, Value], ...]
    through: str
    sources: tuple[Source, ...]
    job: JobCommands


# Cached, since the live screen mostly asks for the same advice every second, and parsing takes a tenth of a second.
@functools.lru_cache(maxsize=64)
def _advice(request: _Request) -> Advice | None:
    try:
        return advise(
            request.call,
            file=request.file,
            line=request.line,
            known=dict(request.known),
            through=request.through,
            sources=request.sources,
            job=request.job,
        )
    except Exception:  # noqa: BLE001 - the user's code may be anything; the finding then has no diff
        return None


def _entry(analysis: Analysis, kind: str, file: str, line: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """Returns the facts of the object created at this line (the one that trains, if there are several), and its rank's facts."""
    first: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    for facts in analysis.facts.values():
        for entry in (facts.get(kind) or ()) if isinstance(facts, Mapping) else ():
            if entry.get("file") == file and entry.get("line") == line:
                if entry.get("training") or kind != "loaders":
                    return entry, facts
                first = first or (entry, facts)
    return first or ({}, next((f for f in analysis.facts.values() if isinstance(f, Mapping)), {}))


def _instead(entry: Mapping[str, Any], arguments: Mapping[str, Argument]) -> str | None:
    """Returns a step that must come first if the arguments alone would not help or would change the training data; else None."""
    wanted, present = arguments.get("num_workers"), entry.get("num_workers")
    iterable = entry.get("sampler") == "_InfiniteConstantSampler"
    if iterable and isinstance(wanted, int) and wanted > 1 and isinstance(present, int) and present <= 1:
        return _SPLIT_FIRST
    workers, without = isinstance(wanted, int) and wanted > 0, isinstance(wanted, int) and wanted == 0
    held = _held(entry.get("dataset"))
    if workers and present == 0 and held:
        return f"its data set holds {', '.join(held)}, which forked workers cannot share: let each worker open its own first"
    if without and (iterable or entry.get("worker_init")):
        return "without workers, worker_init_fn never runs and get_worker_info() is None: check first that the data set can do without them"
    recreated = isinstance(entry.get("made"), int) and entry["made"] > 1
    if recreated and wanted == present and arguments.get("persistent_workers"):
        return f"it is created {entry['made']} times: create it once, or its workers still end with it"
    return None


def _held(dataset: Any) -> list[str]:
    """Types that a data set and the data sets it wraps hold."""
    found: list[str] = []
    while isinstance(dataset, Mapping):
        found += [str(name) for name in dataset.get("held") or ()]
        dataset = dataset.get("inner")
    return found


def _made_of(entry: Mapping[str, Any], facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Returns the user's loader from which a library created this one: accelerate and Lightning do so to give each rank its share."""
    alike = ("num_workers", "pin_memory", "dataset")  # batch size and sampler differ: they become each rank's own
    if not entry.get("through"):
        return None
    for other in facts.get("loaders") or ():
        unused = other.get("training") is None and not other.get("through") and other.get("file")
        if unused and isinstance(other.get("line"), int) and all(other.get(k) == entry.get(k) for k in alike):
            return dict(other)
    return None


def _plain(entry: Mapping[str, Any], name: str) -> bool:
    return name in entry and isinstance(entry[name], (int, float, bool, str, type(None)))


@dataclass(frozen=True, slots=True)
class _Statement:
    where: Where
    words: str
    same: bool  # the call or attribute of the fix itself, not another one that makes the same setting


def _codes(sources: Iterable[Source]) -> list[Code]:
    return [code for source in sources if not source.edited and (code := parse_code(source.path, source.text))]


def _at_its_call(fix: Fix, change: CallChange, analysis: Analysis, sources: tuple[Source, ...]) -> Fix:
    """Edits the only call that creates an object whose creation was not recorded; returns the fix unchanged for no or several calls."""
    if change.callable in _FACTS_OF:
        return fix
    made = [
        (code, call) for code in _codes(sources) for call in code.calls() if last_name(call.func) == change.callable
    ]
    if len(made) != 1:
        return fix
    ((code, call),) = made
    rank: Mapping[str, Any] = next((f for f in analysis.facts.values() if isinstance(f, Mapping)), {})
    job = _commands(analysis, rank)
    request = _Request(change, code.path, call.lineno, known=(), through="", sources=sources, job=job)
    return _advised(fix, Where(code.path, call.lineno), request)


def _at_its_place(fix: Fix, analysis: Analysis, sources: Sequence[Source]) -> Fix:
    """Adds the place and words of the only statement that the fix replaces, or of those that set variables to the same end.

    Returns it unchanged for no or several statements.
    """
    if not isinstance(fix.call, Setup) or len(fix.call.statements) != 1:
        return fix
    wanted = fix.call.statements[0]
    found = [statement for code in _codes(sources) for statement in _statements(code, wanted)]
    if not found and isinstance(wanted, Invocation):
        return _at_its_variables(fix, wanted, analysis, sources)
    if len(found) != 1:
        return fix
    title = f"{wanted} instead of {found[0].words}" if found[0].same else fix.title
    return replace(fix, title=title, where=found[0].where)


def _at_its_variables(fix: Fix, wanted: Invocation, analysis: Analysis, sources: Sequence[Source]) -> Fix:
    """Adds the place of statements that set the environment variables of this setting to the value that the ranks run with."""
    names = _VARIABLES_OF.get(wanted.callable.rpartition(".")[2], ())
    present = {f"{threads:.0f}" for threads in analysis.by_rank(THREADS_INTRA_OP).values()}
    found = [
        _Statement(Where(code.path, node.lineno), code.words(node), same=False)
        for code in _codes(sources)
        for node, value in _variables_set(code, names)
        if not is_literal(value) or str(literal(value)) in present
    ]
    if not found or len({statement.where.file for statement in found}) > 1:
        return fix
    words = " and ".join(f"`{statement.words}`" for statement in found)
    return replace(fix, title=f"{wanted}, or this number in {words}", where=found[0].where)


def _at_its_pattern(
    fix: Fix, call: NumbersKept | GradientsKept | PaddedToLongest | ShrinkFirst, sources: tuple[Source, ...]
) -> Fix:
    if isinstance(call, NumbersKept):
        return _at_what_is_kept(fix, sources)
    if isinstance(call, PaddedToLongest):
        return _at_the_padding(fix, sources)
    return _at_the_backward(fix, sources) if isinstance(call, GradientsKept) else _at_its_list(fix, call, sources)


def _at_what_is_kept(fix: Fix, sources: tuple[Source, ...]) -> Fix:
    """Adds the place of the first statement that keeps tensors of each step, and the words of all; the fix unchanged if there is none."""
    found = _kept(sources)
    if not found:
        return fix
    words = ", ".join(f"`{statement.words}`" for statement in found[:_KEPT_SHOWN])
    title = f"keep numbers of a step instead of its tensors, and with them its graph: {words}"
    return replace(fix, title=title, where=found[0].where)


def _at_the_backward(fix: Fix, sources: Sequence[Source]) -> Fix:
    """Adds the place of the only backward pass, or of the only one in a loop over a step's batches; the fix unchanged if there is none.

    Where the code calls `no_sync` already, says what it may have left outside: a forward pass decides whether its backward pass exchanges.
    """
    found = [(code, call) for code in _codes(sources) for call in code.calls() if last_name(call.func) == "backward"]
    if len(found) > 1:
        found = [(code, call) for code, call in found if sum(isinstance(n, LOOPS) for n in code.around(call)) > 1]
    if len(found) != 1:
        return fix
    ((code, call),) = found
    if any(last_name(other.func) == "no_sync" for each in _codes(sources) for other in each.calls()):
        fix = replace(fix, title=f"{fix.title}: the forward pass, too, inside no_sync()")
    return replace(fix, where=Where(code.path, call.lineno))


def _at_the_padding(fix: Fix, sources: Sequence[Source]) -> Fix:
    """Adds the place and words of the only argument that pads to one length; the fix unchanged for none or several."""
    found = [
        _Statement(Where(code.path, given.value.lineno), code.words(given), same=True)
        for code in _codes(sources)
        for call in code.calls()
        for given in call.keywords
        if is_literal(given.value) and literal(given.value) == _PADS_TO_ONE_LENGTH.get(given.arg or "")
    ]
    if len(found) != 1:
        return fix
    return replace(fix, title=f"{fix.title}, instead of {found[0].words}", where=found[0].where)


def _at_its_list(fix: Fix, change: ShrinkFirst, sources: Sequence[Source]) -> Fix:
    """Names the line of the first transform in the only list of this order; returns the fix unchanged for no or several such lists."""
    wanted = [*change.transforms, change.shrink]
    places = [Where(code.path, first.lineno) for code in _codes(sources) for first in _first_of(code, wanted)]
    return replace(fix, where=places[0]) if len(places) == 1 else fix


def _first_of(code: Code, wanted: Sequence[str]) -> Iterator[ast.expr]:
    """The first of neighbours with these names, in a list, a tuple or the arguments of a call."""
    for node in ast.walk(code.tree):
        if not isinstance(node, (ast.List, ast.Tuple, ast.Call)):
            continue
        steps = node.args if isinstance(node, ast.Call) else node.elts
        names = [last_name(step.func) if isinstance(step, ast.Call) else None for step in steps]
        starts = range(len(names) - len(wanted) + 1)
        yield from (steps[at] for at in starts if names[at : at + len(wanted)] == wanted)


@functools.lru_cache(maxsize=4)  # as for `_advice`
def _kept(sources: tuple[Source, ...]) -> tuple[_Statement, ...]:
    return tuple(
        _Statement(Where(code.path, node.lineno), code.words(node), same=True)
        for code in _codes(sources)
        for node in kept_in_steps(code)
    )


def _statements(code: Code, wanted: Invocation | Assignment) -> Iterator[_Statement]:
    if isinstance(wanted, Invocation):
        name = wanted.callable.rpartition(".")[2]
        for call in code.calls():
            used = last_name(call.func)
            if used is not None and used in (name, *_OTHER_NAMES.get(name, ())):
                yield _Statement(Where(code.path, call.lineno), code.words(call), used == name)
            for given in call.keywords:
                if given.arg == _ARGUMENTS.get(name, "") and not (is_literal(given.value) and not literal(given.value)):
                    yield _Statement(Where(code.path, given.value.lineno), code.words(given), same=False)
        return
    for node in ast.walk(code.tree):
        if not isinstance(node, ast.Assign):
            continue
        for target in node.targets:
            if isinstance(target, ast.Attribute) and f".{wanted.target}".endswith(f".{code.words(target)}"):
                yield _Statement(Where(code.path, node.lineno), code.words(node), same=True)


def _variables_set(code: Code, names: Collection[str]) -> Iterator[tuple[ast.Assign | ast.Call, ast.expr]]:
    """Statements of a file that set one of these environment variables for the process itself, with the value."""
    for node in ast.walk(code.tree):
        if isinstance(node, ast.Assign):
            keys = [t.slice for t in node.targets if isinstance(t, ast.Subscript) and last_name(t.value) == "environ"]
            pairs: list[tuple[ast.expr | None, ast.expr]] = [(key, node.value) for key in keys]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            pairs = _given(node, node.func)
        else:
            continue
        for key, value in pairs:
            if isinstance(key, ast.Constant) and key.value in names:
                yield node, value


def _given(call: ast.Call, method: ast.Attribute) -> list[tuple[ast.expr | None, ast.expr]]:
    """The variables and values that a call of `os.putenv`, or of a method of `os.environ`, sets."""
    of_environ = last_name(method.value) == "environ"
    if of_environ and method.attr == "update":
        dicts = [argument for argument in call.args if isinstance(argument, ast.Dict)]
        by_name = [(ast.Constant(keyword.arg), keyword.value) for keyword in call.keywords]
        return [*by_name, *(pair for d in dicts for pair in zip(d.keys, d.values, strict=True))]
    sets = (of_environ and method.attr == "setdefault") or method.attr == "putenv"
    return [(call.args[0], call.args[1])] if sets and len(call.args) == 2 else []
