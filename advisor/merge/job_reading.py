"""Finds and reads the runs of a job: one run, one run with live data from other nodes, a folder with a run of each node, or traces."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from rn50_advisor.advisor.merge.inbox import INBOX_NAME, Unreadable, sent_recordings
from rn50_advisor.advisor.merge.job_identity import STARTS_WITHIN_S, Identity, identity_of, same_job, takes_place
from rn50_advisor.advisor.merge.merging import merge
from rn50_advisor.advisor.model.errors import NotARun, UsageError
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.kept_trials import TRIED_NAME
from rn50_advisor.advisor.store.run_bundle import SUFFIX, is_bundle, unpack_bundle
from rn50_advisor.advisor.store.run_folders import list_runs, not_read, path_of, resolve_run
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.schema import FILE_NAME
from rn50_advisor.advisor.traces.trace_content import Progress, looks_like_a_trace
from rn50_advisor.advisor.traces.trace_files import EVENTS_HINT, TRACE_SUFFIXES, read_traces, traces_in

_RECENT_FRAMES = 30  # five minutes of each node are enough for a screen that is redrawn every few seconds
_STEPS_TO_IDENTIFY = 1  # per rank: enough to identify the run's job
# A run last written this long before the newest job started is not part of it, even if a host's clock is wrong by an hour and nodes start
# late. So only the last few runs of a folder with hundreds are read.
_LONG_OVER_S = 3600.0 + STARTS_WITHIN_S


@dataclass(frozen=True, slots=True)
class _IdentifiedRun:
    path: Path
    identity: Identity


def resolve_job(argument: str, base: Path) -> Path:
    """Resolves like `resolve_run`; also accepts a folder that holds runs or traces instead of being a run. Raises NotARun."""
    path = path_of(argument)
    try:
        if _is_folder_of_runs(path) and (runs_in(path) or traces_in(path)):
            return path
    except OSError as error:
        raise not_read(argument, error) from error
    return resolve_run(argument, base)


def read_job(
    path: Path,
    *,
    recent_steps: int | None = None,
    progress: Progress | None = None,
    beginning: bool = False,
) -> Recording:
    """Reads the run in `path`, merged with data from other nodes; in a folder with runs, the newest job with all its nodes merged.

    A trace of torch's profiler, or a folder with the traces of several ranks, is read as a run; `progress` is told how far.
    `beginning`: of a job of one run, only the earliest rows and samples, enough for the first report of a replay.
    """
    if looks_like_a_trace(path) or (_is_folder_of_runs(path) and not runs_in(path)):
        return read_traces([path], progress)
    if path.is_file() and path.name.endswith(TRACE_SUFFIXES):
        raise NotARun(f"{path} is neither a run nor a trace of torch.profiler: no event of one is in it", EVENTS_HINT)
    if _is_folder_of_runs(path):
        path, *others = found = newest_job(runs_in(path), path)
        if others:
            return read_nodes(found, recent_steps=recent_steps)
    if path.is_file() and is_bundle(path):
        with tempfile.TemporaryDirectory(prefix="rn50-unpacked-") as folder:
            return _with_sent(unpack_bundle(path, Path(folder)), path, recent_steps, beginning)
    return _with_sent(path, path, recent_steps, beginning)


def read_several(paths: Sequence[Path], progress: Progress | None = None) -> Recording:
    """Reads the traces of several ranks. Raises UsageError if one is no trace: runs are put side by side by `compare`."""
    for path in paths:
        if not looks_like_a_trace(path):
            message = f"{path} is no trace of torch.profiler: only the traces of a job's ranks are reported together"
            raise UsageError(message, "runs are put side by side by rn50-advisor compare")
    return read_traces(paths, progress)


def _with_sent(run: Path, shown_as: Path, recent_steps: int | None, beginning: bool) -> Recording:
    own = read_recording(run, recent_steps=recent_steps, shown_as=shown_as, beginning=beginning)
    inbox = run / INBOX_NAME if run.is_dir() else run.with_name(INBOX_NAME)
    try:
        return merge([own, *sent_recordings(inbox, recent=None if recent_steps is None else _RECENT_FRAMES)])
    except Unreadable as why:
        reason = f"the data that other nodes sent cannot be read: {why}"
        gap = ProbeGap("node", "job", reason, "merge the nodes' own run files: rn50-advisor report FOLDER")
        return replace(own, gaps=(*own.gaps, gap))


def written_files(path: Path) -> list[Path]:
    """Files that change on disk while the job in `path` is recorded, and when its fixes were tried."""
    runs = runs_in(path) if _is_folder_of_runs(path) else [path]
    files = [run / name for run in runs if run.is_dir() for name in (FILE_NAME, INBOX_NAME)] or [path]
    trials = [run / TRIED_NAME for run in runs if run.is_dir()]
    return [*(file.with_name(file.name + suffix) for file in files for suffix in ("", "-wal")), *trials]


def own_folder(path: Path) -> Path | None:
    """The folder of the one run that `read_job` reads in `path`; None for a bundle, for traces, and for several runs of one job."""
    if path.is_dir() and _is_folder_of_runs(path):
        runs = runs_in(path)
        path, *others = newest_job(runs, path) if runs else [path]
        return path if not others and (path / FILE_NAME).is_file() else None
    if path.is_dir():
        return path
    return path.parent if path.name == FILE_NAME else None


def read_nodes(paths: Iterable[Path], *, recent_steps: int | None = None) -> Recording:
    return merge([read_recording(path, recent_steps=recent_steps) for path in paths])


def runs_in(folder: Path) -> list[Path]:
    """Returns the runs in this folder and in its subfolders (one per host), newest first in each; then the bundles in this folder."""
    try:
        inner = sorted(entry for entry in folder.iterdir() if _is_folder_of_runs(entry))
        bundles = sorted(entry for entry in folder.iterdir() if entry.name.endswith(SUFFIX))
    except OSError:
        return []
    return [*list_runs(folder), *(run for entry in inner for run in list_runs(entry)), *bundles]


def _is_folder_of_runs(path: Path) -> bool:
    return path.is_dir() and not (path / FILE_NAME).is_file()


def newest_job(runs: Sequence[Path], folder: Path) -> list[Path]:
    """Returns the runs of all nodes of the newest job. Raises NotARun if no run can be read."""
    seen: list[_IdentifiedRun] = []
    why, began_unix_s = "", 0.0
    for written_unix_s, path in sorted(((_written_unix_s(run), run) for run in runs), reverse=True):
        if written_unix_s < began_unix_s - _LONG_OVER_S:
            break
        try:
            seen.append(_IdentifiedRun(path, identity_of(read_recording(path, recent_steps=_STEPS_TO_IDENTIFY))))
        except NotARun as error:
            why = error.message
        else:
            began_unix_s = max(began_unix_s, min(seen[-1].identity.began_unix_s, written_unix_s))
    if not seen:
        raise NotARun(f"{folder} holds no run that can be read: {why}")
    newest = max(seen, key=lambda one: one.identity.began_unix_s)
    chosen = [newest]
    for other in sorted(seen, key=lambda one: -one.identity.began_unix_s):
        fits = other is not newest and all(same_job(other.identity, one.identity) for one in chosen)
        if fits and not any(_nearer(other, one, seen) for one in chosen):
            chosen.append(other)
    return [one.path for one in chosen]


def _written_unix_s(run: Path) -> float:
    file = run / FILE_NAME if run.is_dir() else run
    states = [path.stat().st_mtime for path in (file, file.with_name(file.name + "-wal")) if path.exists()]
    return max(states, default=0.0)


def _nearer(other: _IdentifiedRun, one: _IdentifiedRun, seen: Sequence[_IdentifiedRun]) -> bool:
    """True if `other` started closer to another run in the place of `one`: a restarted job leaves runs of older nodes behind."""

    def apart_s(a: _IdentifiedRun, b: _IdentifiedRun) -> float:
        return abs(a.identity.began_unix_s - b.identity.began_unix_s)

    return any(
        takes_place(rival.identity, one.identity)
        and same_job(rival.identity, other.identity)
        and apart_s(rival, other) < apart_s(one, other)
        for rival in seen
        if rival is not other and rival is not one
    )
