"""Deep windows: asks ranks for one through a file in the ring folder, and takes up the traces that they leave.

A separate thread reads, summarises and compresses a trace and stores it beside the run file; the summary goes into the run as an event.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
import shutil
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import cast

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, happened
from rn50_advisor.advisor.run.sidefiles.recorder_requests import FROM_STEP, STEPS, TRACE_BYTES_MAX, ask
from rn50_advisor.probes.documents.event_documents import TracedWindow
from rn50_advisor.probes.documents.rank_documents import RankFacts, WindowFacts
from rn50_advisor.probes.rank.side_files import DEEP_TRACE

# Automatic windows: the maximum time for CUPTI's start, two slow steps and the export, estimated without measurements on hardware.
ASSUMED_COST_S = 5.0
AUTO_STEPS = 50
# Share of the step in input wait and gaps: above it, compute is not the first thing to look at.
AUTO_OUTSIDE_SHARE = 0.10
# Below it training stayed 10-20 % slower after a window, as CUPTI was not released (pytorch#146604), and Kineto wrote to stderr.
AUTO_TORCH = (2, 7)
_TRACE = re.compile(re.escape(DEEP_TRACE).replace("%d", r"\d+"))

News = AnyEvent | ProbeGap


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rank as the agent sees it: shares of its recent steps, by the host's clocks and by the GPU's (None: unknown)."""

    rank: int
    pid: int
    steps: int
    wait_share: float
    outside_share: float
    idle_share: float | None = None

    @property
    def elsewhere_share(self) -> float:
        """Share of the time outside the model: input wait and gaps, as the GPU sees them, since the host may wait there."""
        return self.wait_share + self.outside_share if self.idle_share is None else self.idle_share


def worth_a_window(candidates: Iterable[Candidate], facts: Mapping[int, RankFacts]) -> Candidate | None:
    """The first rank, if it trains on a GPU with a torch version whose profiler leaves no cost behind, and is compute-bound."""
    first = min(candidates, key=lambda candidate: candidate.rank, default=None)
    if first is None or first.steps < AUTO_STEPS:
        return None
    rank_facts = facts.get(first.pid, {})
    if not rank_facts.get("cuda") or _version(rank_facts.get("torch") or "") < AUTO_TORCH:
        return None
    return first if first.elsewhere_share <= AUTO_OUTSIDE_SHARE else None


def _version(text: str) -> tuple[int, int]:
    try:
        major, minor = text.split(".")[:2]
        return int(major), int(minor)
    except ValueError:
        return 0, 0


class DeepDesk:
    """`look` is for every second; it and `finish` return what is to be recorded. `cpu_s` is what reading traces took."""

    def __init__(
        self,
        ring_folder: Path | None,
        run_folder: Path,
        *,
        mode: str,
        budget: float,
    ) -> None:
        self._ring_folder = ring_folder
        self._run_folder = run_folder
        self._mode = mode if ring_folder is not None else "off"
        self._budget = budget
        self._news: deque[News] = deque()
        self._began_s = time.monotonic()
        self._asked = False
        self._states: dict[int, str] = {}  # pid -> last state of its window
        self._threads: list[threading.Thread] = []
        self.cpu_s = 0.0

    def look(self, candidates: Iterable[Candidate], facts: Mapping[int, RankFacts]) -> list[News]:
        if self._mode == "off":
            return []
        if self._mode == "auto" and not self._asked and self._affordable():
            chosen = worth_a_window(candidates, facts)
            if chosen is not None:
                self._asked = True
                self._ask(chosen)
        for pid, rank_facts in facts.items():
            if window := rank_facts.get("deep"):
                self._take(pid, rank_facts, window)
        return self._collected()

    def finish(self, within_s: float) -> list[News]:
        """Waits, at the job's end, for traces that are still being read, and reports missing ones."""
        deadline = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            self._gap("job", "its trace was still being read when the job ended")
        if self._mode == "now" and not {"done", "refused"} & set(self._states.values()):
            why = f"no rank came to its step {FROM_STEP + STEPS}"
            if "trying" in self._states.values():
                why = "the window was closed early each time it was opened"
            self._gap("job", why)
        with contextlib.suppress(OSError):
            for left in self._run_folder.iterdir():
                if _TRACE.fullmatch(left.name):
                    left.unlink()
        return self._collected()

    def _collected(self) -> list[News]:
        found = []
        while self._news:
            found.append(self._news.popleft())
        return found

    def _affordable(self) -> bool:
        return (time.monotonic() - self._began_s) * self._budget >= ASSUMED_COST_S

    def _ask(self, chosen: Candidate) -> None:
        assert self._ring_folder is not None
        try:
            ask(self._ring_folder, self._run_folder, pid=chosen.pid)
        except OSError as error:
            self._gap(f"rank:{chosen.rank}", f"it could not be asked for: {error.strerror}")

    def _take(self, pid: int, facts: RankFacts, window: WindowFacts) -> None:
        state = window.get("state", "")
        if self._states.get(pid) == state:
            return
        self._states[pid] = state
        rank = max(0, facts.get("rank", 0))
        if state == "refused":
            self._gap(f"rank:{rank}", window.get("reason", "")[:300])
        elif state == "done":
            thread = threading.Thread(target=self._read, args=(pid, rank, window), name="rn50-deep", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _read(self, pid: int, rank: int, window: WindowFacts) -> None:
        began_s = time.thread_time()
        raw = self._run_folder / (DEEP_TRACE % pid)  # never a path given by the job
        try:
            if raw.stat().st_size > TRACE_BYTES_MAX:
                raise ValueError("it is larger than it should be")
            name = f"deep-rank{rank}.json.gz"
            data = summed_up(raw, rank, window, name)
            packed = self._run_folder / name
            with (
                raw.open("rb") as source,
                open(packed, "wb", opener=_private) as out,
                gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=6) as compressed,
            ):
                shutil.copyfileobj(source, compressed, 1 << 20)
            self._news.append(happened(TracedWindow, data, t_ns=time.perf_counter_ns(), pid=pid, rank=rank))
        except Exception as error:  # noqa: BLE001 - whatever a trace holds, the recording goes on
            self._gap(f"rank:{rank}", f"its trace cannot be read: {type(error).__name__}: {error}"[:300])
        finally:
            with contextlib.suppress(OSError):
                raw.unlink()
            self.cpu_s += time.thread_time() - began_s

    def _gap(self, scope: str, reason: str) -> None:
        hint = "deep windows are not opened beside other profilers, CUDA graphs, full memory, evaluations and long accumulation"
        self._news.append(ProbeGap("kernel.window", scope, reason, hint))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def summed_up(raw: Path, rank: int, window: WindowFacts, name: str) -> TracedWindow:
    """The summary of a trace that the run keeps. Raises OSError or ValueError."""
    from rn50_advisor.advisor.analysis.kernels.kernel_windows import window_of  # noqa: PLC0415 - with the job under way, not at the start

    document = json.loads(raw.read_bytes().decode("utf-8", "replace"))
    if not isinstance(document, dict):
        raise ValueError("not a JSON object")
    found = window_of(document, rank=rank, first_step=window.get("first_step", 0))
    cost_s = window.get("start_s", 0.0) + window.get("stop_s", 0.0) + window.get("export_s", 0.0)
    return cast(TracedWindow, asdict(replace(found, trace=name, cost_s=cost_s)))
