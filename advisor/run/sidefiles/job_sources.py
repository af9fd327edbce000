"""Keeps the files of the job's own code that facts point into or that take time: advice can then be an edit when the code is far away."""

from __future__ import annotations

import hashlib
import os
import posixpath
import re
import stat
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from rn50_advisor.advisor.model.input.data_loaders import within
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Source
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.documents.code_places import CodePlace
from rn50_advisor.probes.documents.event_documents import SampleMaking, StackProfile
from rn50_advisor.probes.documents.rank_documents import RankFacts

FILES_MAX = 16
FILE_BYTES_MAX = 256 << 10
ALL_BYTES_MAX = 1 << 20
_SHARE_MIN = 0.02  # of a profile's samples
_INSTALLED = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3[^/]*/")


@dataclass(frozen=True, slots=True)
class SourceNews:
    """The result of reading a source file: its text, or the reason why it is missing."""

    path: str
    source: Source | None
    why: str = ""


class Sources:
    """Requests each file once through `want`, which answers later, so that a dead network mount never blocks."""

    def __init__(self, writer: RunWriter, *, want: Callable[[str, float], None]) -> None:
        self._writer = writer
        self._want = want
        self._asked: dict[str, float] = {}
        self._answered: set[str] = set()
        self._bytes = 0

    def named(self, facts: RankFacts) -> None:
        """Requests every file of user code that a process's facts name."""
        known_at = facts.get("written_unix_s", 0.0)
        for path in _paths(facts):
            self._request(path, known_at)

    def in_stacks(self, profile: StackProfile, known_at_unix_s: float) -> None:
        """Requests the files of user code that took at least a fiftieth of a profile's samples."""
        samples = Counter[str]()
        for row in profile["stacks"]:
            if user := row.get("user"):
                samples[user["file"]] += row["count"]
        for path, count in samples.most_common():
            if count >= _SHARE_MIN * profile["looks"] and _is_own(path):
                self._request(path, known_at_unix_s)
        for made in profile.get("making", ()):
            if made["count"] >= _SHARE_MIN * profile["looks"]:
                self.making(made, known_at_unix_s)

    def making(self, data: SampleMaking, known_at_unix_s: float) -> None:
        """Requests the files of user code in which a process was found making a batch."""
        for frame in [data.get("user"), *data.get("callers", ())]:
            if frame and _is_own(frame["file"]):
                self._request(frame["file"], known_at_unix_s)

    def found(self, news: SourceNews) -> None:
        if news.path in self._answered:
            return
        self._answered.add(news.path)
        source, why = news.source, news.why
        if source is not None and self._bytes + len(source.text) > ALL_BYTES_MAX:
            source, why = None, "the files kept of the job's code are large enough"
        if source is not None:
            self._bytes += len(source.text)
            if self._writer.put_source(source):
                return
            why = "its secrets cannot be masked: this interpreter cannot parse it"
        scope = posixpath.basename(news.path)
        self._writer.put_gap(ProbeGap("source", scope, f"{why or 'not read'}: fixes have no diff there"))

    def _request(self, path: str, known_at_unix_s: float) -> None:
        if path not in self._asked and len(self._asked) < FILES_MAX:
            self._asked[path] = known_at_unix_s
            self._want(path, known_at_unix_s)

    def finish(self) -> None:
        """Reads the remaining files in this process, at the job's end."""
        for path, known_at in self._asked.items():
            if path not in self._answered:
                self.found(read_source(path, known_at))


def read_source(path: str, known_at_unix_s: float) -> SourceNews:
    """Blocks as long as the file system does. Only plain files of moderate size, in UTF-8, are taken."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with os.fdopen(descriptor, "rb") as file:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                return SourceNews(path, None, "not a regular file")
            if status.st_size > FILE_BYTES_MAX:
                return SourceNews(path, None, f"{status.st_size} bytes long")
            data = file.read(FILE_BYTES_MAX + 1)
        text = data.decode("utf-8")
    except OSError as error:
        return SourceNews(path, None, error.strerror or "it cannot be read")
    except UnicodeDecodeError:
        return SourceNews(path, None, "not in UTF-8")
    edited = known_at_unix_s > 0 and status.st_mtime > known_at_unix_s
    return SourceNews(path, Source(path, hashlib.sha256(data).hexdigest(), text, edited))


def _paths(facts: RankFacts) -> Iterator[str]:
    """Absolute names of the files that loaders, models, tables, hooks, checkpoints and transforms were made in, and of the script."""
    places: list[CodePlace] = [
        *facts.get("loaders", ()),
        *facts.get("ddp", ()),
        *facts.get("tables", ()),
        *facts.get("piled_hooks", ()),
        *facts.get("save_sites", ()),
        *facts.get("evaluation_sites", ()),
    ]
    datasets = [one for loader in facts.get("loaders", ()) for one in within(loader.get("dataset", {}))]
    built = [file for dataset in datasets for file in dataset.get("transform_files", ())]
    for name in [*(place.get("file", "") for place in places), *facts.get("argv", [])[:1], *built]:
        path = posixpath.normpath(posixpath.join(facts.get("cwd") or "", name))
        if _is_own(path):
            yield path


def _is_own(path: str) -> bool:
    return path.endswith(".py") and posixpath.isabs(path) and not _INSTALLED.search(path)
