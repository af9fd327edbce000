"""Processes that died, how they ended, and whether the kernel's OOM killer killed them."""

from __future__ import annotations

import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.probes.host.process.death_watch import DeathWatch, ProcessDeath

_WAIT_S = 0.1  # how late the end of the run may be noticed; a death is noticed at once
# A large process takes seconds to give its memory back: between the kernel's count and the zombie.
_BEFORE_NS = 5_000_000_000
_AFTER_NS = 2_500_000_000  # two ticks of the probes that read the counters
_KEPT_NS = 60_000_000_000


class DeathDesk:
    """A thread that waits for deaths, because a parent reaps its child within milliseconds and the status is gone with it."""

    def __init__(self, post: Callable[[ProcessDeath | ProbeGap], None]) -> None:
        """Raises OSError where the kernel gives no epoll."""
        self._watch = DeathWatch()
        self._post = post
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="rn50-deaths", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def watch(self, pid: int) -> None:
        self._watch.watch(pid)

    def finish(self) -> None:
        """Returns once all deaths so far have been posted."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(20 * _WAIT_S)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._post_deaths(_WAIT_S)
            self._post_deaths(0.0)
            self._watch.close()
        except Exception as error:  # noqa: BLE001 - the wall of this thread
            reason = f"watching for dead processes stopped: {type(error).__name__}: {error}"
            self._post(ProbeGap("deaths", "job", reason, "exit codes of ranks are seen only by chance"))

    def _post_deaths(self, wait_s: float) -> None:
        for death in self._watch.poll(wait_s):
            self._post(death)


@dataclass(frozen=True, slots=True)
class _Counters:
    t_ns: int
    host: float | None
    by_scope: dict[str, float]


class OomLedger:
    """Weighs deaths by SIGKILL against the kernel's counts of OOM kills around them."""

    def __init__(self) -> None:
        self._readings: deque[_Counters] = deque()
        self._suspects: list[ProcessDeath] = []
        self._charged_ns: list[int] = []  # deaths that a counted kill was already given to

    def note(self, t_ns: int, samples: Iterable[Sample]) -> None:
        host, by_scope = None, {}
        for sample in samples:
            if sample.metric == "mem.oom_kills":
                host = sample.value
            elif sample.metric == "cgroup.oom_kills":
                by_scope[sample.scope] = sample.value
        if host is not None or by_scope:
            self._readings.append(_Counters(t_ns, host, by_scope))
        while len(self._readings) > 2 and self._readings[1].t_ns < t_ns - _KEPT_NS:
            self._readings.popleft()

    def suspect(self, death: ProcessDeath) -> None:
        """SIGKILL may have another sender; the status of a death that was not observed is unknown."""
        if death.signal == signal.SIGKILL or (death.signal is None and death.exit_code is None):
            self._suspects.append(death)

    def settle(self, now_ns: int, *, last: bool = False) -> list[int]:
        """Pids that the OOM killer took, of the deaths old enough to be judged; `last`: of all."""
        found, waiting = [], []
        for death in self._suspects:
            if not last and now_ns < death.t_ns + _AFTER_NS:
                waiting.append(death)
            elif self._kills_around(death) > sum(abs(t - death.t_ns) < _BEFORE_NS for t in self._charged_ns):
                self._charged_ns = [t_ns for t_ns in self._charged_ns if t_ns > death.t_ns - _KEPT_NS] + [death.t_ns]
                found.append(death.pid)
        self._suspects = waiting
        return found

    def _kills_around(self, death: ProcessDeath) -> float:
        before = [r for r in self._readings if r.t_ns <= death.t_ns - _BEFORE_NS] or list(self._readings)[:1]
        after = [r for r in self._readings if r.t_ns <= death.t_ns + 2 * _AFTER_NS]
        if not before or not after:
            return 0.0
        first, then = before[-1], after[-1]
        grown = [then.by_scope[scope] - count for scope, count in first.by_scope.items() if scope in then.by_scope]
        if first.host is not None and then.host is not None:
            grown.append(then.host - first.host)
        return max(grown, default=0.0)
