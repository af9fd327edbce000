"""The last lines of a rank's stderr, where that is a file: `2> log`, logs of Slurm, a folder of torchrun's; and which file its stdout is.

The kernel names the file while the rank lives. Files are opened in threads with a bounded wait, and last lines only if the job has failed,
so an unresponsive server delays nothing.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.sidefiles.last_words import words_of
from rn50_advisor.advisor.run.sidefiles.own_evidence import NotOfTheJob, open_own

_BYTES_MAX = 64 << 10  # of one file
_FILES_MAX = 16
ANSWERS_WITHIN_S = 1.0


@dataclass(frozen=True, slots=True)
class Printed:
    """A file that a process of the job prints to."""

    rank: int | None
    path: str
    begin: int = 0  # content before this offset is not this job's
    inode: int | None = None  # by which it is known again, whosever it is; kernels before 5.14 do not report it


class Streams:
    """The files that the ranks print to. `watch` must be called while a process lives. `descriptor`: 1 is stdout, 2 is stderr.

    The job inherits the stream of `owner`, the process that started it. `before_bytes`: size of that file when the job began.
    """

    def __init__(
        self, descriptor: int, before_bytes: int, proc: Path = Path("/proc"), *, owner: int | str = "self"
    ) -> None:
        self._descriptor = descriptor
        self._proc = proc
        self._streams: dict[int, Printed | None] = {}  # None: no file, or not permitted
        self._gaps: dict[str, str] = {}  # scope -> why its output is unknown
        self._inherited = Printed(None, "", before_bytes)
        with contextlib.suppress(OSError):
            self._inherited = Printed(None, self._path(str(owner)), before_bytes, _inode(self._fdinfo(str(owner))))
            self._streams[0] = self._inherited if _may_be_file(self._inherited.path) else None

    @property
    def files(self) -> tuple[Printed, ...]:
        """Each once, with the least that is known to be this job's."""
        found: dict[str, Printed] = {}
        for stream in self._streams.values():
            if stream is not None and stream.begin <= found.get(stream.path, stream).begin:
                found[stream.path] = stream
        return tuple(found.values())

    def watch(self, pid: int, rank: int | None) -> None:
        """Reads nothing but /proc, and that once."""
        if pid in self._streams:
            return
        try:
            self._streams[pid] = self._stream(pid, rank)
        except PermissionError as error:
            name = "stdout" if self._descriptor == 1 else "stderr"
            self._gaps[_scope(rank)] = f"which file its {name} is may not be asked: {error.strerror}"
            self._streams[pid] = None
        except (OSError, KeyError, ValueError):
            pass  # it has just ended

    def _stream(self, pid: int, rank: int | None) -> Printed | None:
        path = self._path(str(pid))
        if path == self._inherited.path or not _may_be_file(path):
            return None  # it is read already, or cannot be
        fdinfo = self._fdinfo(str(pid))
        at, appends = int(fdinfo["pos"]), int(fdinfo["flags"], 8) & os.O_APPEND
        if appends and not at:
            return None  # no output yet: the size of others' earlier output is unknown
        return Printed(rank, path, at if appends else 0, _inode(fdinfo))

    def _fdinfo(self, process: str) -> dict[str, str]:
        text = (self._proc / process / f"fdinfo/{self._descriptor}").read_text()
        return dict(line.split(":", 1) for line in text.splitlines())

    def _path(self, process: str) -> str:
        return os.readlink(self._proc / process / f"fd/{self._descriptor}")  # noqa: PTH115 - it may be no path: `pipe:[4711]`


class StderrFiles(Streams):
    """`watch` while a process lives, `ended` as they end, `last_lines` once, when the job has failed."""

    def __init__(self, before_bytes: int, proc: Path = Path("/proc"), *, owner: int | str = "self") -> None:
        super().__init__(2, before_bytes, proc, owner=owner)
        self._ended: list[int] = []

    def ended(self, pid: int) -> None:
        if pid in self._streams:  # a job may start any number of other processes
            self._ended.append(pid)

    def last_lines(self) -> tuple[list[str], list[ProbeGap]]:
        """The last lines of each process, in the order in which they ended, without secrets. Lines of a single rank's
        file name the rank.
        """
        by_path: dict[str, list[Printed]] = {}
        for pid in dict.fromkeys((*self._ended, *self._streams)):
            stream = self._streams.get(pid)
            if stream is not None:
                by_path.setdefault(stream.path, []).append(stream)
        lines: list[str] = []
        thread = threading.Thread(target=self._read, args=(by_path, lines), name="rn50-stderr", daemon=True)
        thread.start()
        thread.join(ANSWERS_WITHIN_S)
        if thread.is_alive():
            self._gaps["job"] = "the file system of its stderr does not answer"
        return list(lines), [ProbeGap("stderr", scope, reason) for scope, reason in list(self._gaps.items())]

    def _read(self, by_path: dict[str, list[Printed]], lines: list[str]) -> None:
        for path, streams in list(by_path.items())[:_FILES_MAX]:
            first, *others = streams
            try:
                words = _words(first, min(stream.begin for stream in streams))
            except OSError as error:
                self._gaps[_scope(first.rank)] = f"{path}: {error.strerror}"
                continue
            alone = first.rank is not None and all(stream.rank == first.rank for stream in others)
            lines += [f"[rank{first.rank}]: {line}" if alone else line for line in words]


def _words(printed: Printed, begin: int) -> list[str]:
    """Raises OSError where it cannot be read; what is no file of the job's says nothing."""
    try:
        with open_own(Path(printed.path), inode=printed.inode) as file:
            size = os.fstat(file.fileno()).st_size
            return words_of(Path(f"/proc/self/fd/{file.fileno()}"), begin=max(begin, size - _BYTES_MAX))
    except NotOfTheJob:
        return []


def _inode(fdinfo: Mapping[str, str]) -> int | None:
    return int(fdinfo["ino"]) if "ino" in fdinfo else None


def _may_be_file(path: str) -> bool:
    return path.startswith("/") and not path.startswith("/dev/") and not path.endswith(" (deleted)")


def _scope(rank: int | None) -> str:
    return "job" if rank is None else f"rank:{rank}"
