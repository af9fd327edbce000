"""Finds NCCL's log lines, if the user has enabled them: in the output (kept or in files) or in files of `NCCL_DEBUG_FILE`."""

from __future__ import annotations

import contextlib
import glob
import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from rn50_advisor.advisor.run.sidefiles.own_evidence import open_own
from rn50_advisor.advisor.run.sidefiles.stderr_files import ANSWERS_WITHIN_S, Printed
from rn50_advisor.advisor.store.secrets.masking import redact_text

_BYTES_MAX = 4 << 20  # per file: connections are logged at its start
_FILES_MAX = 64
_LINES_MAX = 600
_CHARACTERS_MAX = 300
_LOOK_AFTER_S = (10.0, 30.0, 120.0)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# One line per connection and channel, thousands in a large job. Lines equal except for host name and pid are kept once.
_RELEVANT = re.compile(
    r"NCCL version \d|NCCL INFO (?:Using network|NET/|.*coll channels|comm 0x|ncclCommInitRank|.* via |.*\bAlgo |.*set by environment)"
)
_LINE_PREFIX = re.compile(r"^.*?(?=NCCL (?:INFO|version))")


class NcclLines:
    """`look` reads again from the start: when it is `due`, and at the end of the job."""

    def __init__(
        self, output: Path, environment: Mapping[str, str], *, now_s: float, since_unix_s: float = 0.0
    ) -> None:
        """Reads only files written since the start: `%p` leaves those of earlier runs beside them."""
        self._since_unix_s = since_unix_s
        self._due_s = [now_s + after_s for after_s in _LOOK_AFTER_S]
        self._output = output
        self._pattern = pattern_of(environment.get("NCCL_DEBUG_FILE", ""))
        self._known: tuple[str, ...] = ()
        self._read: tuple[str, ...] = ()
        self._reader: threading.Thread | None = None

    def due(self, now_s: float) -> bool:
        """True a few times: communicators are created when a job starts training."""
        if not self._due_s or now_s < self._due_s[0]:
            return False
        del self._due_s[0]
        return True

    def look(self, printed: Iterable[Printed] = ()) -> list[str] | None:
        """All relevant lines, if there are more than last time.

        `printed`: files that the ranks print to. A server that holds one and no longer answers is waited
        for once, and not for long: what was read until then comes with a later look.
        """
        if self._reader is None or not self._reader.is_alive():
            work = (tuple(printed),)
            self._reader = threading.Thread(target=self._take_all, args=work, name="rn50-nccl", daemon=True)
            with contextlib.suppress(RuntimeError):  # no thread could be started
                self._reader.start()
                self._reader.join(ANSWERS_WITHIN_S)
        lines = self._read
        if not lines or lines == self._known:
            return None
        self._known = lines
        return list(lines)

    def _take_all(self, printed: tuple[Printed, ...]) -> None:
        found: dict[str, str] = {}
        left = 2 * _FILES_MAX
        for file, since_unix_s in self._files(printed):
            with contextlib.suppress(OSError):  # gone, not of this job, or its server has forgotten it
                with open_own(Path(file.path), since_unix_s=since_unix_s, inode=file.inode) as opened:
                    opened.seek(file.begin)
                    text = opened.read(_BYTES_MAX).decode("utf-8", "replace")
                take(text, found)
                left -= 1
            if left < 0:
                break
        self._read = tuple(list(found.values())[:_LINES_MAX])

    def _files(self, printed: tuple[Printed, ...]) -> Iterator[tuple[Printed, float]]:
        """Yields each file and the time, in Unix seconds, from which its lines belong to this run."""
        yield Printed(None, str(self._output)), 0.0
        for file in printed[:_FILES_MAX]:
            yield file, 0.0
        for name in sorted(glob.glob(self._pattern)):  # noqa: PTH207 - a pattern of a whole path
            yield Printed(None, name), self._since_unix_s


def take(text: str, found: dict[str, str]) -> None:
    """Adds the relevant lines of a text; the key is the line without host name and pid."""
    for raw in text.splitlines():
        if "NCCL" not in raw or len(found) >= _LINES_MAX:
            continue
        line = redact_text(_ANSI.sub("", raw))[:_CHARACTERS_MAX]
        if _RELEVANT.search(line):
            found.setdefault(_LINE_PREFIX.sub("", line), line.strip())


def pattern_of(name: str) -> str:
    """A pattern for the files that NCCL makes of this name: %h is the host, %p the process. Empty: none, or a terminal's."""
    if not name or name.startswith("/dev/"):
        return ""
    return re.sub(r"%[hp]", "*", glob.escape(name))
