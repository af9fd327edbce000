"""Finds the traces that a user means, tells which rank each is of, and reads them.

A trace names its rank in `distributedInfo`, else its file does: `rank-0.json.gz` as HolisticTraceAnalysis has it, or
`host_1234.1623143089861.pt.trace.json` as TensorBoard's handler writes it, with the process id and the time.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.wording.quantities import shorten_path
from rn50_advisor.advisor.traces.trace_content import DECODED, Progress, looks_like_a_trace
from rn50_advisor.advisor.traces.trace_json import read_trace_file
from rn50_advisor.advisor.traces.trace_recording import recording_of
from rn50_advisor.advisor.traces.traced_rank import TracedRank, of_rank, traced_rank

TRACE_SUFFIXES = (".json", ".json.gz")
EVENTS_HINT = "torch.profiler's export_chrome_trace or tensorboard_trace_handler writes them"
_RANK = re.compile(r"(?:^|[^a-z])rank[-_ .]?(\d{1,6})", re.IGNORECASE)
_TENSORBOARD = re.compile(r"^(?P<worker>.+?)(?:\.(?P<stamp>\d{9,}))?\.pt\.trace\.json(?:\.gz)?$")
_FILES_MAX = 4096
_FOLDERS_MAX = 256
_OTHER_RUN_NS = 600 * 10**9  # ranks of one run are profiled at the same steps


@dataclass(frozen=True, slots=True)
class _Named:
    path: Path
    worker: str  # files of one worker are of one rank
    rank: int | None
    stamp: float  # the later one is newer


def traces_in(folder: Path) -> list[Path]:
    """The traces in a folder, by name; if it has none itself, those of the folder in it that was written last (a log folder has many)."""
    own = _directly_in(folder)
    if own:
        return own
    try:
        folders = sorted((path for path in folder.iterdir() if path.is_dir()), key=lambda path: -path.stat().st_mtime)
    except OSError:
        return []
    inner = [_directly_in(path) for path in folders[:_FOLDERS_MAX]]
    return max((found for found in inner if found), key=_written_s, default=[])


def _directly_in(folder: Path) -> list[Path]:
    try:
        found = sorted(path for path in folder.iterdir() if path.name.endswith(TRACE_SUFFIXES) and path.is_file())
    except OSError:
        return []
    return [path for path in found[:_FILES_MAX] if looks_like_a_trace(path)]


def _written_s(paths: Sequence[Path]) -> float:
    """When the newest of these files was written; 0 if they are gone."""
    try:
        return max(path.stat().st_mtime for path in paths)
    except OSError:
        return 0.0


def read_traces(paths: Sequence[Path], progress: Progress | None = None) -> Recording:
    """The recording of the job whose ranks these files, or the files in this folder, are of. Raises NotARun."""
    files = [file for path in paths for file in (traces_in(path) if path.is_dir() else [path])]
    if not files:
        raise NotARun(f"{paths[0]} holds no trace of torch.profiler", "a trace ends in .json or .json.gz")
    chosen, left_out = _newest(files)
    whole, before = max(1, sum(_size(named.path) for named in chosen)), 0
    read: list[_Read] = []
    for named in chosen:

        def advance(share: float, before: int = before, size: int = _size(named.path)) -> None:
            if progress is not None:
                progress((before + share * size) / whole)

        read.append(_read(named, advance))
        before += _size(named.path)
    ranks, earlier = _of_one_run(read)
    name = paths[0].name if len(paths) == 1 else chosen[0].path.parent.name
    return recording_of(ranks, name, [*left_out, *earlier])


@dataclass(frozen=True, slots=True)
class _Read:
    named: _Named
    rank: int | None  # None: neither the trace nor its file names it
    traced: TracedRank


def _read(named: _Named, advance: Progress) -> _Read:
    """Reads one file. Raises NotARun if anything in it cannot be understood."""
    try:
        file = read_trace_file(named.path, advance)
        rank = _whole(file.distributed.get("rank"))
        rank = named.rank if rank is None else rank
        world = _whole(file.distributed.get("world_size")) or 1
        traced = traced_rank(file, rank or 0, world, lambda share: advance(DECODED + (1 - DECODED) * share))
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError) as error:
        shown = shorten_path(str(named.path), 120)
        raise NotARun(f"{shown} holds events that no profiler writes: {type(error).__name__}: {error}") from error
    return _Read(named, rank, traced)


def _of_one_run(read: Sequence[_Read]) -> tuple[list[TracedRank], list[str]]:
    """(the ranks of the newest run, in order; the names of other files).

    Traces without a rank belong to it if their times overlap. Clocks of nodes differ, so that one with a rank is only left out if it ended
    long before, or if the newest run has fewer ranks.
    """
    newest = max(read, key=lambda one: one.traced.end_ns).traced
    known: dict[int, _Read] = {}
    unknown, earlier = [], []
    for one in sorted(read, key=lambda one: one.traced.end_ns):
        if one.rank is not None:
            before = one.traced.end_ns < newest.begin_ns - _OTHER_RUN_NS
            if before or (newest.world_size > 1 and one.rank >= newest.world_size):
                earlier.append(one.named.path.name)
                continue
            if one.rank in known:
                earlier.append(known[one.rank].named.path.name)
            known[one.rank] = one
        elif one.traced.end_ns < newest.begin_ns:
            earlier.append(one.named.path.name)
        else:
            unknown.append(one)
    ranks = {rank: one.traced for rank, one in known.items()}
    for one in sorted(unknown, key=lambda one: one.named.path.name):
        rank = next(number for number in range(len(read)) if number not in ranks)
        ranks[rank] = of_rank(one.traced, rank)
    return [replace(ranks[rank], world_size=max(ranks[rank].world_size, len(ranks))) for rank in sorted(ranks)], earlier


def _newest(files: Sequence[Path]) -> tuple[list[_Named], list[str]]:
    """(the newest file of each worker, the names of the others)."""
    found: dict[str, _Named] = {}
    left_out = []
    for named in sorted((_named(path) for path in files), key=lambda named: (named.stamp, named.path.name)):
        if named.worker in found:
            left_out.append(found.pop(named.worker).path.name)
        found[named.worker] = named
    return sorted(found.values(), key=lambda named: (named.rank is None, named.rank or 0, named.path.name)), left_out


def _named(path: Path) -> _Named:
    match, rank = _TENSORBOARD.match(path.name), _RANK.search(path.name)
    number = int(rank[1]) if rank else None
    worker = match["worker"] if match else path.name
    stamp = float(match["stamp"]) if match and match["stamp"] else 0.0
    return _Named(path, str(path.parent / worker), number, stamp)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None
