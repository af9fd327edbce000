"""Removes runs, and nothing that the advisor did not make: what else lies in a run's folder stays there.

A folder is taken for a run only by the identity in its run file. All work happens through its open descriptor: no link is followed.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import sqlite3
import stat
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.advisor.model.errors import AdvisorError, NotARun
from rn50_advisor.advisor.model.wording.quantities import shorten_path
from rn50_advisor.advisor.store.database import LOCK_NAME
from rn50_advisor.advisor.store.kept_trials import TRIED_NAME, holds_tried
from rn50_advisor.advisor.store.run_access import check_identity, open_database
from rn50_advisor.advisor.store.run_summary import SUMMARY_NAME, meta_values, read_summary
from rn50_advisor.advisor.store.schema import FILE_NAME, NODES_NAME, OUTPUT_NAME
from rn50_advisor.probes.documents.event_documents import KINDS, TracedWindow
from rn50_advisor.probes.rank.side_files import DEEP_TRACE

# A run that is recorded is locked and written every second. A lock of another host may not be visible here, its writes are.
WRITTEN_WITHIN_S = 30.0
# Around the run's time: a relay keeps the last output of processes that the job left behind. A file of another time is somebody else's.
_OUTPUT_EARLY_S, _OUTPUT_LATE_S = 5.0, 60.0
_DATABASE_SUFFIXES = ("", "-wal", "-shm", "-journal")
_PACKED_TRACE = re.compile(r"deep-rank\d+\.json\.gz")
_NODE_TABLES = {"nodes", "frames"}
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


@dataclass(frozen=True, slots=True)
class Removable:
    """A run as it may be removed. `kept`: what else is in its folder and stays; `size_bytes`: of what goes."""

    folder: Path
    identity: tuple[int, int]
    kept: tuple[str, ...]
    size_bytes: int


def removable(folder: Path) -> Removable:
    """Looks at a run without changing it. Raises NotARun if this is not certainly a run of ours, AdvisorError if it is being recorded."""
    with _held(folder) as at:
        ours, kept = _sorted_out(at)
        size = sum(about.st_size for name in ours if (about := _about(at, name)))
        return Removable(folder, _identity(os.fstat(at)), tuple(kept), size)


def remove_run(run: Removable) -> tuple[str, ...]:
    """Removes the run; returns what stays in its folder, which then stays too. Raises as `removable`, or OSError."""
    with _held(run.folder) as at:
        if _identity(os.fstat(at)) != run.identity:
            raise NotARun(f"{run.folder} is another folder by now", "nothing of it was removed")
        ours, _ = _sorted_out(at)
        for name in ours:  # the run file comes late: what is left of a removal that fails is still a run
            with contextlib.suppress(FileNotFoundError):  # SQLite may remove the files beside it
                os.unlink(name, dir_fd=at)
        kept = tuple(sorted(os.listdir(at)))  # noqa: PTH208 - a descriptor
        if not kept and _identity(run.folder.lstat()) == run.identity:
            run.folder.rmdir()
        return kept


def is_recorded(folder: Path) -> bool:
    """True if an advisor writes this run, on this host or on another one. False for what is no run, or not ours."""
    try:
        with _held(folder):
            return False
    except (NotARun, OSError):
        return False
    except AdvisorError:
        return True


@contextlib.contextmanager
def _held(folder: Path) -> Iterator[int]:
    """Opens the folder of a run and holds its lock, if it has one."""
    name = shorten_path(str(folder), 200)
    try:
        at = os.open(folder, _FOLDER)
    except OSError as error:
        why = "is a link" if folder.is_symlink() else "is no folder" if folder.is_file() else str(error.strerror)
        raise NotARun(f"{name} cannot be removed: it {why}", "name the folder of a run") from error
    try:
        _check_is_ours(at, name)
        lock = _locked(at, name)
        try:
            yield at
        finally:
            if lock is not None:
                os.close(lock)
    finally:
        os.close(at)


def _check_is_ours(at: int, name: str) -> None:
    """Raises NotARun."""
    hint = "remove it by hand if it is yours"
    if os.fstat(at).st_uid != os.geteuid():
        raise NotARun(f"{name} belongs to another user", "ask that user to remove it")
    about = _about(at, FILE_NAME)
    if about is None:
        raise NotARun(f"{name} holds no run: there is no {FILE_NAME} in it", hint)
    if not _is_own_file(about):
        raise NotARun(f"{name} is not certainly a run: {FILE_NAME} in it is no plain file of yours", hint)
    try:
        check_identity(_path_of(at) / FILE_NAME)
    except NotARun as error:
        why = error.message.partition(FILE_NAME)[2].strip()
        raise NotARun(f"{name} is not certainly a run: {FILE_NAME} in it {why}", error.hint or hint) from error


def _locked(at: int, name: str) -> int | None:
    """Returns the descriptor of the run's lock; None where it has none, as after its end. Raises AdvisorError if it is held."""
    recorded = AdvisorError(f"{name} is being recorded, or was a moment ago", "stop the job, or wait for its end")
    try:
        lock = os.open(LOCK_NAME, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=at)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise recorded from None
    except OSError:
        pass  # a file system without locks: its times decide
    if time.time() - _written_unix_s(at) < WRITTEN_WITHIN_S:
        os.close(lock)
        raise recorded
    return lock


def _written_unix_s(at: int) -> float:
    states = (_about(at, FILE_NAME + suffix) for suffix in _DATABASE_SUFFIXES[:2])
    return max((about.st_mtime for about in states if about), default=0.0)


def _sorted_out(at: int) -> tuple[list[str], list[str]]:
    """Returns the names in the folder that we made, in the order in which they go, and all others."""
    last = [*(FILE_NAME + suffix for suffix in reversed(_DATABASE_SUFFIXES)), LOCK_NAME]
    made = {*last, *_recorded_names(at)}
    if read_summary(_path_of(at)) is not None:
        made.add(SUMMARY_NAME)
    if holds_tried(_path_of(at)):
        made.add(TRIED_NAME)
    if _holds_frames(_path_of(at) / NODES_NAME):
        made.update(NODES_NAME + suffix for suffix in _DATABASE_SUFFIXES)
    names = sorted(os.listdir(at))
    ours = [name for name in names if name in made and (about := _about(at, name)) and _is_own_file(about)]
    ours.sort(key=lambda name: last.index(name) if name in last else -1)
    return ours, [name for name in names if name not in ours]


def _recorded_names(at: int) -> set[str]:
    """Names of files that the run itself says were made for it: traces, and the output that a screen kept. Empty if it is damaged."""
    try:
        with open_database(_path_of(at) / FILE_NAME) as db:
            found = {DEEP_TRACE % pid for (pid,) in db.execute("SELECT pid FROM facts") if isinstance(pid, int)}
            for (data,) in db.execute("SELECT data FROM events WHERE kind = ?", (KINDS[TracedWindow],)):
                name = json.loads(data).get("trace")
                if isinstance(name, str) and _PACKED_TRACE.fullmatch(name):
                    found.add(name)
            if _is_kept_output(at, db):
                found.add(OUTPUT_NAME)
            return found
    except (NotARun, ArithmeticError, ValueError, TypeError, KeyError, AttributeError):
        return set()


def _is_kept_output(at: int, db: sqlite3.Connection) -> bool:
    """True if the output file is from the run's time, and the run says that its output was kept. Raises as its caller expects."""
    meta = meta_values(db, "output_kept", "started_unix_s", "started_ns", "last_ns", "ended_ns")
    if meta.get("output_kept") is not True:
        return False
    start = float(meta["started_unix_s"])
    end = start + (float(meta.get("ended_ns") or meta["last_ns"]) - float(meta["started_ns"])) / 1e9
    about = _about(at, OUTPUT_NAME)
    return about is not None and start - _OUTPUT_EARLY_S <= about.st_mtime <= end + _OUTPUT_LATE_S


def _holds_frames(file: Path) -> bool:
    """True if the file is what other nodes sent, by its tables."""
    if not file.is_file() or file.is_symlink():
        return False
    try:
        with contextlib.closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=1)) as db:
            return {
                name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
            } == _NODE_TABLES
    except sqlite3.Error:
        return False


def _path_of(at: int) -> Path:
    return Path(f"/proc/self/fd/{at}")


def _about(at: int, name: str) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=at, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _identity(about: os.stat_result) -> tuple[int, int]:
    return about.st_dev, about.st_ino


def _is_own_file(about: os.stat_result) -> bool:
    return stat.S_ISREG(about.st_mode) and about.st_uid == os.geteuid()
