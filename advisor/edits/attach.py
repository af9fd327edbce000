"""Gives the fixes of findings their diffs, or the words for what no diff can do. A pure function of findings, facts and kept sources."""

from __future__ import annotations

import functools
import posixpath
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rn50_advisor.advisor.edits.advise import Advice, JobCommands, advise
from rn50_advisor.advisor.edits.fix_request import Request, Value, request_of
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding, Fix, Where
from rn50_advisor.advisor.model.recording import Source

_SHARE_OUT = "an IterableDataset gives every worker all samples: let it share them out by get_worker_info() first"
_FACTS_OF: Mapping[str, str] = {"DataLoader": "loaders", "DistributedDataParallel": "ddp"}


def with_edits(findings: Iterable[Finding], analysis: Analysis, sources: Sequence[Source]) -> tuple[Finding, ...]:
    """The same findings; a fix whose place or request is none that an edit could serve stays as it is."""
    if not sources:
        return tuple(findings)
    kept = tuple(sources)
    return tuple(replace(f, fixes=tuple(_edited(fix, analysis, kept) for fix in f.fixes)) for f in findings)


def _edited(fix: Fix, analysis: Analysis, sources: tuple[Source, ...]) -> Fix:
    request = request_of(fix.change) if fix.where is not None else None
    if request is None or fix.where is None or request.call not in _FACTS_OF:
        return fix
    entry, rank = _entry(analysis, _FACTS_OF[request.call], fix.where.file, fix.where.line)
    where = fix.where
    if (original := _made_of(entry, rank)) is not None:
        entry, where = original, Where(str(original["file"]), int(original["line"]))
    folder = str(rank.get("cwd") or analysis.meta.cwd)
    if (instead := _instead(entry, request)) is not None:
        return replace(fix, change=f"{fix.change}\n{instead}", where=where)
    argv = (*analysis.meta.argv, *(str(word) for word in rank.get("argv") or ()))
    asked = _Asked(
        call=request.call,
        arguments=tuple(request.arguments.items()),
        file=posixpath.normpath(posixpath.join(folder, where.file)),
        line=where.line,
        known=tuple((name, entry[name]) for name in request.arguments if _plain(entry, name)),
        through=str(entry.get("through") or ""),
        sources=sources,
        job=JobCommands(argv, folder),
    )
    advice = _advice(asked)
    if advice is None:
        return replace(fix, where=where)
    return replace(fix, change="\n".join([fix.change, *advice.words]), diff=advice.diff, where=where)


@dataclass(frozen=True, slots=True)
class _Asked:
    call: str
    arguments: tuple[tuple[str, Value], ...]
    file: str
    line: int
    known: tuple[tuple[str, Value], ...]
    through: str
    sources: tuple[Source, ...]
    job: JobCommands


# The live screen asks every second, mostly for the same: parsing takes a tenth of a second.
@functools.lru_cache(maxsize=64)
def _advice(asked: _Asked) -> Advice | None:
    try:
        return advise(
            Request(asked.call, dict(asked.arguments)),
            file=asked.file,
            line=asked.line,
            known=dict(asked.known),
            through=asked.through,
            sources=asked.sources,
            job=asked.job,
        )
    except Exception:  # noqa: BLE001 - code may be written in any way there is; the finding stands without a diff
        return None


def _entry(analysis: Analysis, kind: str, file: str, line: int) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """What a rank said of the object made at this line (the one that trains, if there are more), and the rank's facts."""
    first: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None
    for facts in analysis.facts.values():
        for entry in (facts.get(kind) or ()) if isinstance(facts, Mapping) else ():
            if entry.get("file") == file and entry.get("line") == line:
                if entry.get("training") or kind != "loaders":
                    return entry, facts
                first = first or (entry, facts)
    return first or ({}, next((f for f in analysis.facts.values() if isinstance(f, Mapping)), {}))


def _instead(entry: Mapping[str, Any], request: Request) -> str | None:
    """What is to be done first where the arguments alone would not help, or would change what is trained on."""
    wanted, there = request.arguments.get("num_workers"), entry.get("num_workers")
    iterable = entry.get("sampler") == "_InfiniteConstantSampler"
    if iterable and isinstance(wanted, int) and wanted > 1 and isinstance(there, int) and there <= 1:
        return _SHARE_OUT
    workers, without = isinstance(wanted, int) and wanted > 0, isinstance(wanted, int) and wanted == 0
    held = _held(entry.get("dataset"))
    if workers and there == 0 and held:
        return f"its data set holds {', '.join(held)}, which forked workers cannot share: let each make its own first"
    if without and (iterable or entry.get("worker_init")):
        return "without workers worker_init_fn never runs and get_worker_info() is None: see first that the data set can do so"
    anew = isinstance(entry.get("made"), int) and entry["made"] > 1
    if anew and wanted == there and request.arguments.get("persistent_workers"):
        return f"it was made {entry['made']} times: make it once, or its workers end with it all the same"
    return None


def _held(dataset: Any) -> list[str]:
    """Of a data set and what it wraps."""
    found: list[str] = []
    while isinstance(dataset, Mapping):
        found += [str(name) for name in dataset.get("held") or ()]
        dataset = dataset.get("inner")
    return found


def _made_of(entry: Mapping[str, Any], facts: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The loader of the user's that a library made this one anew from: accelerate and Lightning do, to give each rank its share."""
    alike = ("num_workers", "pin_memory", "dataset")  # batch size and sampler become each rank's own
    if not entry.get("through"):
        return None
    for other in facts.get("loaders") or ():
        unused = other.get("training") is None and not other.get("through") and other.get("file")
        if unused and isinstance(other.get("line"), int) and all(other.get(k) == entry.get(k) for k in alike):
            return dict(other)
    return None


def _plain(entry: Mapping[str, Any], name: str) -> bool:
    return name in entry and isinstance(entry[name], (int, float, bool, str, type(None)))
