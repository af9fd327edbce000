"""The small files beside the rings: facts that a process states about itself, names of parts of a sample, errors of its recorder, and what
NCCL timed of its collectives.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, data_of, happened
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.advisor.run.sidefiles.job_sources import Sources
from rn50_advisor.advisor.store.document_checks import fitting
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.documents.collective_documents import TimedCollectives
from rn50_advisor.probes.documents.event_documents import ChunkedArray, SampleMaking, StackProfile
from rn50_advisor.probes.documents.loader_documents import DescribedDataset, PartName
from rn50_advisor.probes.documents.rank_documents import MountFacts, RankFacts
from rn50_advisor.probes.rank.side_files import CHUNKED, ERROR, FACTS, LEFT_BY_PROCESS, PART, TIMES

_FILE_KINDS = (CHUNKED, FACTS, ERROR, PART, TIMES)
_SCOPES = {CHUNKED: "array", PART: "part"}
_BYTES_MAX = 4 << 20
_LEFT_KEPT = 200  # dead processes whose facts a late answer about a mount may complete
_ERROR_CHARACTERS = 300
_REASON_CHARACTERS = 600
_MEMORY_FULL = (
    "the memory that its ring would lie in is nearly full: what pid {pid} does is recorded in part or not at all"
)
_MEMORY_HINT = "give the container more shared memory (docker: --shm-size)"


class Notes:
    """Reads what changed since the last time. `facts` is by pid.

    Requests the mount of a dataset's root through `want_mount`, which answers later, and never for a dead network mount.
    """

    def __init__(
        self,
        writer: RunWriter,
        folder: Path,
        *,
        want_mount: Callable[[str], None],
        want_source: Callable[[str, float], None],
    ) -> None:
        self._writer = writer
        self._folder = folder
        self._want_mount = want_mount
        self.sources = Sources(writer, want=want_source)
        self._seen: dict[str, tuple[int, int]] = {}
        self._mounts: dict[str, MountFacts | None] = {}
        self._times: dict[int, TimedCollectives] = {}  # of collectives, by pid
        self.facts: dict[int, RankFacts] = {}
        self._left: deque[int] = deque()

    def read(self) -> None:
        try:
            entries = list(os.scandir(self._folder))
        except OSError:
            return
        for entry in entries:
            number = "".join(filter(str.isdigit, entry.name))
            kind = next((name for name in _FILE_KINDS if number and entry.name == name % int(number)), "")
            if not kind:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
                stamp = (status.st_ino, status.st_mtime_ns)
                if self._seen.get(entry.name) != stamp:
                    self._seen[entry.name] = stamp
                    self._take(kind, int(number), Path(entry.path), status.st_size)
            except FileNotFoundError:
                continue

    def leave(self, pid: int) -> None:
        """Reads a dead process's files once more and removes them: those of thousands of processes would fill shared memory."""
        left = [path for name in LEFT_BY_PROCESS if (path := self._folder / (name % pid)).exists()]
        if left:
            self.read()
        for path in left:
            self._seen.pop(path.name, None)
            with contextlib.suppress(OSError):
                path.unlink()
        if pid in self.facts or pid in self._times:
            self._left.append(pid)
        if len(self._left) > _LEFT_KEPT:
            oldest = self._left.popleft()
            self.facts.pop(oldest, None)
            self._times.pop(oldest, None)

    def mount_found(self, root: str, mount: MountFacts | None) -> None:
        self._mounts[root] = mount
        for pid, facts in self.facts.items():
            if root in _roots(facts).values():
                self._put(pid, facts)

    def profiled(self, event: AnyEvent) -> None:
        """Requests the files in which a profile found a rank, or a sample a process that makes batches; other events are ignored."""
        profile, making = data_of(event, StackProfile), data_of(event, SampleMaking)
        known_at = self.facts.get(event.pid or 0, RankFacts()).get("written_unix_s", 0.0)
        if profile is not None:
            self.sources.in_stacks(profile, known_at)
        elif making is not None:
            self.sources.making(making, known_at)

    def _put(self, pid: int, facts: RankFacts) -> None:
        whole: RankFacts = {**facts}
        known = {root: self._mounts.get(place) for root, place in _roots(facts).items()}
        if mounts := {root: mount for root, mount in known.items() if mount}:
            whole["mounts"] = mounts
        if times := self._times.get(pid):
            whole["collective_times"] = times
        self._writer.put_facts(pid, whole)

    def _take(self, kind: str, number: int, path: Path, size: int) -> None:
        """`number`: the pid of the process, or that of the part or the array."""
        pid, scope = number, f"{_SCOPES.get(kind, 'pid')}:{number}"
        try:
            if size > _BYTES_MAX:
                raise ValueError(f"{size} bytes long")
            text = path.read_text(errors="replace")
            if kind == ERROR:
                message = text.strip()[:_ERROR_CHARACTERS]
                reason = (
                    f"the recorder met an error in pid {pid}: {message}" if message else _MEMORY_FULL.format(pid=pid)
                )
                self._writer.put_gap(ProbeGap("recorder", scope, reason, "" if message else _MEMORY_HINT))
                return
            document = json.loads(text)
            if not isinstance(document, dict):
                raise ValueError("not a JSON object")
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            self._writer.put_gap(ProbeGap("facts", scope, f"{path.name} cannot be read: {error}"))
            return
        shape: type[Any] = {CHUNKED: ChunkedArray, PART: PartName, TIMES: TimedCollectives}.get(kind, RankFacts)
        kept, wrong = fitting(document, shape)
        for words in wrong[:1]:
            self._writer.put_gap(ProbeGap("facts", scope, f"{path.name} is read in part: {words}"))
        if kind == CHUNKED:
            if not wrong:
                self._writer.put_event(happened(ChunkedArray, kept, t_ns=time.perf_counter_ns()))
        elif kind == PART:
            self._writer.put_part_name(number, kept)
        elif kind == TIMES:
            self._times[pid] = kept
            if pid in self.facts:
                self._put(pid, self.facts[pid])
        else:
            self._take_facts(pid, kept)

    def _take_facts(self, pid: int, facts: RankFacts) -> None:
        self.facts[pid] = facts
        self._report_unpatched(pid, facts.get("unpatched", ()))
        self._report_dropped(pid, facts.get("gpu_steps_dropped", 0))
        if facts.get("several_threads_train"):
            reason = f"several threads of pid {pid} train: only the steps of the first one are recorded"
            self._writer.put_gap(
                ProbeGap("recorder.threads", f"pid:{pid}", reason, "train each model in its own process")
            )
        self.sources.named(facts)
        for place in _roots(facts).values():
            if place not in self._mounts:
                self._mounts[place] = None
                self._want_mount(place)
        self._put(pid, facts)

    def _report_unpatched(self, pid: int, missing: Sequence[str]) -> None:
        if missing:
            reason = f"the recorder in pid {pid} cannot see all it should: {'; '.join(missing)}"
            hint = "this torch may be older or newer than those that the advisor was tested with"
            self._writer.put_gap(ProbeGap("recorder.unpatched", f"pid:{pid}", reason[:_REASON_CHARACTERS], hint))

    def _report_dropped(self, pid: int, steps: int) -> None:
        if steps > 0:
            reason = f"{counted(steps, 'step')} without GPU times: too many events, none ready in time, or none that could be read"
            self._writer.put_gap(ProbeGap("gpu.steps", f"pid:{pid}", reason))


def _roots(facts: RankFacts) -> dict[str, str]:
    """Folders that the process's data sets lie in, as they say and in full: a job may have changed its folder."""
    roots = (loader.get("dataset", DescribedDataset()).get("root") for loader in facts.get("loaders", ()))
    return {root: posixpath.join(facts.get("cwd") or "", root) for root in roots if root}
