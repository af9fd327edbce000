"""Finds what NCCL prints of itself where the user has asked it to: in the output that is kept, or in the files of `NCCL_DEBUG_FILE`."""

from __future__ import annotations

import contextlib
import glob
import re
from collections.abc import Mapping
from pathlib import Path

from advisor.store.secrets import redact_text

_BYTES_MAX = 4 << 20  # of each file: what tells of connections stands at its begin
_FILES_MAX = 64
_LINES_MAX = 600
_CHARACTERS_MAX = 300
_LOOK_AFTER_S = (10.0, 30.0, 120.0)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")
# One line a connection and channel: of a large job thousands. Those that tell the same but for the host's name and the pid are kept once.
_TELLING = re.compile(
    r"NCCL version \d|NCCL INFO (?:Using network|NET/|.*coll channels|comm 0x|ncclCommInitRank|.* via |.*\bAlgo |.*set by environment)"
)
_WHO = re.compile(r"^.*?(?=NCCL (?:INFO|version))")


class NcclLines:
    """`look` reads again from the begin: when it is `due`, and at the end of the job."""

    def __init__(
        self, output: Path, environment: Mapping[str, str], *, now_s: float, since_unix_s: float = 0.0
    ) -> None:
        """Of the files that the user named only those written since then: `%p` leaves those of earlier runs beside them."""
        self._since_unix_s = since_unix_s
        self._due_s = [now_s + after_s for after_s in _LOOK_AFTER_S]
        self._output = output
        self._pattern = pattern_of(environment.get("NCCL_DEBUG_FILE", ""))
        self._known: tuple[str, ...] = ()

    def due(self, now_s: float) -> bool:
        """True a few times: communicators are made when a job begins to train."""
        if not self._due_s or now_s < self._due_s[0]:
            return False
        del self._due_s[0]
        return True

    def look(self) -> list[str] | None:
        """All lines that tell something, where there are more than last time."""
        found: dict[str, str] = {}
        for path in self._files():
            with contextlib.suppress(OSError):
                with path.open("rb") as file:
                    text = file.read(_BYTES_MAX).decode("utf-8", "replace")
                take(text, found)
        lines = tuple(list(found.values())[:_LINES_MAX])
        if not lines or lines == self._known:
            return None
        self._known = lines
        return list(lines)

    def _files(self) -> list[Path]:
        named = [Path(name) for name in sorted(glob.glob(self._pattern))]  # noqa: PTH207 - a pattern of a whole path
        ours = [path for path in named if self._is_of_this_run(path)][:_FILES_MAX]
        return [path for path in (self._output, *ours) if path.is_file()]

    def _is_of_this_run(self, path: Path) -> bool:
        with contextlib.suppress(OSError):
            return path.stat().st_mtime >= self._since_unix_s
        return False


def take(text: str, found: dict[str, str]) -> None:
    """Add the lines of a text that tell something new, by what they say."""
    for raw in text.splitlines():
        if "NCCL" not in raw or len(found) >= _LINES_MAX:
            continue
        line = _ANSI.sub("", raw)[:_CHARACTERS_MAX]
        if _TELLING.search(line):
            found.setdefault(_WHO.sub("", line), redact_text(line.strip()))


def pattern_of(name: str) -> str:
    """A pattern for the files that NCCL makes of this name: %h is the host, %p the process. Empty: none, or a terminal's."""
    if not name or name.startswith("/dev/"):
        return ""
    return re.sub(r"%[hp]", "*", glob.escape(name))
