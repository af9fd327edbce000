"""Deep windows: asks ranks for one through a file in the ring folder, and takes up the traces that they leave.

A trace is read, summed up, packed and put beside the run file in a thread of its own; what it says goes into the run as an event.
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
from typing import Any

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import Event
from rn50_advisor.advisor.run.sidefiles.recorder_requests import FROM_STEP, STEPS, TRACE_BYTES_MAX, ask

# Automatic windows: what CUPTI's start, two slow steps and the export were guessed to take at most, until hardware has been seen.
ASSUMED_COST_S = 5.0
AUTO_STEPS = 50
# Of the step, for input or between steps: more, and compute is not the first thing to look at.
AUTO_OUTSIDE_SHARE = 0.10
# Below it training stayed 10-20 % slower after a window, for CUPTI was not let go of (pytorch#146604), and Kineto wrote to stderr.
AUTO_TORCH = (2, 7)
_EVENT = "deep"
_TRACE = re.compile(r"deep-\d+\.json")  # as the recorder names it, by its process

News = Event | ProbeGap


@dataclass(frozen=True, slots=True)
class Candidate:
    """A rank as the agent sees it: shares of its recent steps, by the host's clocks and by the GPU's (None: it tells none)."""

    rank: int
    pid: int
    steps: int
    wait_share: float
    outside_share: float
    idle_share: float | None = None

    @property
    def elsewhere_share(self) -> float:
        """What goes for input and between steps: as the GPU has it, for which the host may wait there."""
        return self.wait_share + self.outside_share if self.idle_share is None else self.idle_share


def worth_a_window(candidates: Iterable[Candidate], facts: Mapping[int, Mapping[str, Any]]) -> Candidate | None:
    """The first rank, where it trains on a GPU, on a torch that leaves no cost behind, and hardly waits for anything else."""
    first = min(candidates, key=lambda candidate: candidate.rank, default=None)
    if first is None or first.steps < AUTO_STEPS:
        return None
    told = facts.get(first.pid, {})
    if not told.get("cuda") or _version(told.get("torch")) < AUTO_TORCH:
        return None
    return first if first.elsewhere_share <= AUTO_OUTSIDE_SHARE else None


def _version(text: Any) -> tuple[int, int]:
    try:
        major, minor = str(text).split(".")[:2]
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
        self._told: dict[int, str] = {}  # pid -> state that was taken up
        self._threads: list[threading.Thread] = []
        self.cpu_s = 0.0

    def look(self, candidates: Iterable[Candidate], facts: Mapping[int, Mapping[str, Any]]) -> list[News]:
        if self._mode == "off":
            return []
        if self._mode == "auto" and not self._asked and self._affordable():
            chosen = worth_a_window(candidates, facts)
            if chosen is not None:
                self._asked = True
                self._ask(chosen)
        for pid, told in facts.items():
            window = told.get("deep")
            if isinstance(window, Mapping):
                self._take(pid, told, window)
        return self._told_now()

    def finish(self, within_s: float) -> list[News]:
        """The job has ended: wait for traces that are being read, and say what never came."""
        deadline = time.monotonic() + within_s
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        if any(thread.is_alive() for thread in self._threads):
            self._gap("job", "its trace was still being read when the job ended")
        if self._mode == "now" and not {"done", "refused"} & set(self._told.values()):
            why = f"no rank came to its step {FROM_STEP + STEPS}"
            if "trying" in self._told.values():
                why = "the window was closed early each time it was opened"
            self._gap("job", why)
        with contextlib.suppress(OSError):
            for left in self._run_folder.iterdir():
                if _TRACE.fullmatch(left.name):
                    left.unlink()
        return self._told_now()

    def _told_now(self) -> list[News]:
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

    def _take(self, pid: int, facts: Mapping[str, Any], window: Mapping[str, Any]) -> None:
        state = str(window.get("state"))
        if self._told.get(pid) == state:
            return
        self._told[pid] = state
        rank = facts.get("rank")
        rank = rank if isinstance(rank, int) and rank >= 0 else 0
        if state == "refused":
            self._gap(f"rank:{rank}", str(window.get("reason"))[:300])
        elif state == "done":
            thread = threading.Thread(target=self._read, args=(pid, rank, dict(window)), name="rn50-deep", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _read(self, pid: int, rank: int, window: Mapping[str, Any]) -> None:
        began_s = time.thread_time()
        raw = self._run_folder / f"deep-{pid}.json"  # never a path that the job names
        try:
            if raw.stat().st_size > TRACE_BYTES_MAX:
                raise ValueError("it is larger than it should be")
            name = f"deep-rank{rank}.json.gz"
            data = summed_up(raw, rank, window, name)
            packed = self._run_folder / name
            with (
                raw.open("rb") as source,
                open(packed, "wb", opener=_private) as out,
                gzip.GzipFile(filename="", mode="wb", fileobj=out, compresslevel=6) as zipped,
            ):
                shutil.copyfileobj(source, zipped, 1 << 20)
            self._news.append(Event(time.perf_counter_ns(), _EVENT, pid, rank, data))
        except Exception as error:  # noqa: BLE001 - whatever a trace holds, the recording goes on
            self._gap(f"rank:{rank}", f"its trace cannot be read: {type(error).__name__}: {error}"[:300])
        finally:
            with contextlib.suppress(OSError):
                raw.unlink()
            self.cpu_s += time.thread_time() - began_s

    def _gap(self, scope: str, reason: str) -> None:
        hint = "deep windows leave other profilers, CUDA graphs, full memory, evaluations and long accumulation alone"
        self._news.append(ProbeGap("kernel.window", scope, reason, hint))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def summed_up(raw: Path, rank: int, window: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What the run keeps of a trace. Raises OSError or ValueError."""
    from rn50_advisor.advisor.analysis.kernels.kernel_windows import window_of  # noqa: PLC0415 - with the job under way, not at the start

    document = json.loads(raw.read_bytes().decode("utf-8", "replace"))
    if not isinstance(document, dict):
        raise ValueError("no JSON object")
    first = window.get("first_step")
    found = window_of(document, rank=rank, first_step=first if isinstance(first, int) else 0)
    times = [window.get(key) for key in ("start_s", "stop_s", "export_s")]
    cost_s = sum(float(value) for value in times if isinstance(value, (int, float)))
    return asdict(replace(found, trace=name, cost_s=cost_s))
