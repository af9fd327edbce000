"""The small files beside the rings: facts that a process states about itself, names of parts of a sample, errors of its recorder, and what
NCCL timed of its collectives.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.wording.quantities import counted
from rn50_advisor.advisor.run.sidefiles.job_sources import Sources
from rn50_advisor.advisor.store.run_writer import RunWriter

_BYTES_MAX = 4 << 20
_LEFT_KEPT = 200  # dead processes whose facts a late answer about a mount may complete
_ERROR_CHARACTERS = 300
_REASON_CHARACTERS = 600
_NO_ROOM = "the memory that its ring would lie in is nearly full: what pid {pid} does is not recorded, or in part"
_MORE_ROOM = "give the container more shared memory (docker: --shm-size)"


class Notes:
    """Reads what changed since the last time. `facts` is by pid.

    What a data set's root is mounted from is asked of `want_mount`, which answers later: a dead network mount answers never.
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
        self._mounts: dict[str, Mapping[str, Any] | None] = {}
        self._times: dict[int, dict[str, Any]] = {}  # of collectives, by pid
        self.facts: dict[int, dict[str, Any]] = {}
        self._left: deque[int] = deque()

    def read(self) -> None:
        try:
            entries = list(os.scandir(self._folder))
        except OSError:
            return
        for entry in entries:
            kind, _, number = entry.name.partition(".")[0].partition("-")
            if kind not in ("facts", "error", "part", "times") or not number.isdigit() or entry.name.endswith(".new"):
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
        """It has died: its files are read once more and go. A job that starts thousands of processes would fill shared memory with them."""
        names = (f"facts-{pid}.json", f"times-{pid}.json", f"error-{pid}.txt", f"flight-{pid}.json")
        left = [path for path in map(self._folder.joinpath, names) if path.exists()]
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

    def mount_found(self, root: str, mount: Mapping[str, Any] | None) -> None:
        self._mounts[root] = mount
        for pid, facts in self.facts.items():
            if root in _roots(facts).values():
                self._put(pid, facts)

    def _put(self, pid: int, facts: dict[str, Any]) -> None:
        known = {root: self._mounts[place] for root, place in _roots(facts).items() if self._mounts.get(place)}
        besides = {"mounts": known, "collective_times": self._times.get(pid)}
        self._writer.put_facts(pid, {**facts, **{name: told for name, told in besides.items() if told}})

    def _take(self, kind: str, number: int, path: Path, size: int) -> None:
        """`number`: the pid of the process, or that of the part."""
        pid, scope = number, f"{'part' if kind == 'part' else 'pid'}:{number}"
        try:
            if size > _BYTES_MAX:
                raise ValueError(f"{size} bytes long")
            text = path.read_text(errors="replace")
            if kind == "error":
                said = text.strip()[:_ERROR_CHARACTERS]
                reason = f"the recorder met an error in pid {pid}: {said}" if said else _NO_ROOM.format(pid=pid)
                self._writer.put_gap(ProbeGap("recorder", scope, reason, "" if said else _MORE_ROOM))
                return
            facts = json.loads(text)
            if not isinstance(facts, dict):
                raise ValueError("no JSON object")
            if kind == "part":
                self._writer.put_part_name(number, facts)
                return
            if kind == "times":
                self._times[pid] = facts
                if pid in self.facts:
                    self._put(pid, self.facts[pid])
                return
        except FileNotFoundError:
            raise
        except (OSError, ValueError) as error:
            self._writer.put_gap(ProbeGap("facts", scope, f"{path.name} cannot be read: {error}"))
            return
        self.facts[pid] = facts
        self._tell_unpatched(pid, facts.get("unpatched"))
        self._tell_dropped(pid, facts.get("gpu_steps_dropped"))
        if facts.get("several_threads_train"):
            reason = (
                f"several threads of pid {pid} train: of them the steps of one are recorded, that which began first"
            )
            self._writer.put_gap(
                ProbeGap("recorder.threads", f"pid:{pid}", reason, "train in a process for each model")
            )
        self.sources.named(facts)
        for place in _roots(facts).values():
            if place not in self._mounts:
                self._mounts[place] = None
                self._want_mount(place)
        self._put(pid, facts)

    def _tell_unpatched(self, pid: int, told: Any) -> None:
        if isinstance(told, list) and told:
            reason = f"the recorder in pid {pid} cannot see all it should: {'; '.join(map(str, told))}"
            hint = "this torch may be older or newer than those that the advisor was tried with"
            self._writer.put_gap(ProbeGap("recorder.unpatched", f"pid:{pid}", reason[:_REASON_CHARACTERS], hint))

    def _tell_dropped(self, pid: int, steps: Any) -> None:
        if isinstance(steps, int) and steps > 0:
            reason = f"{counted(steps, 'step')} without GPU times: too many events, none ready in time, or none that could be read"
            self._writer.put_gap(ProbeGap("gpu.steps", f"pid:{pid}", reason))


def _roots(facts: Mapping[str, Any]) -> dict[str, str]:
    """Folders that the process's data sets lie in, as they say and in full: a job may have changed its folder."""
    folder = facts.get("cwd")
    return {root: posixpath.join(folder if isinstance(folder, str) else "", root) for root in _said(facts)}


def _said(facts: Mapping[str, Any]) -> Iterator[str]:
    loaders = facts.get("loaders")
    for loader in loaders if isinstance(loaders, list) else ():
        dataset = loader.get("dataset") if isinstance(loader, dict) else None
        root = dataset.get("root") if isinstance(dataset, dict) else None
        if isinstance(root, str) and root:
            yield root
