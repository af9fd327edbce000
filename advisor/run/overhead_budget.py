"""Keeps the advisor within its overhead budget: it drops one measurement after another, and reports each."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rn50_advisor.advisor.model.metrics import ProbeGap, Sample
from rn50_advisor.advisor.model.recording import happened
from rn50_advisor.advisor.run.own_usage import MARKS, CostBook
from rn50_advisor.advisor.run.processes.host_watch import HostWatch
from rn50_advisor.advisor.run.rings.ring_follower import Follower
from rn50_advisor.advisor.run.stacks.stack_thread import StackWatch
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.documents.event_documents import RecorderCost, ShedProbe

_EACH_CORE = "cpu:"
_RECORDER_OVER_NS = 30_000_000_000


class OverheadBudget:
    """Call `look` every second. `workers`: True while workers are still sampled."""

    def __init__(
        self, book: CostBook, writer: RunWriter, *, host: HostWatch, stacks: StackWatch, budget: float
    ) -> None:
        self._book = book
        self._writer = writer
        self._host = host
        self._stacks = stacks
        self._budget = budget
        self._self_ns: dict[int, tuple[int, int]] = {}  # pid -> when, and what its recorder had cost by then
        # the same of living workers, by pid and when they were first seen; and of all that were seen, the time and what it had cost in it
        self._workers_ns: dict[tuple[int, int], tuple[int, int]] = {}
        self._workers_total_ns = (0, 0)
        self._recorder_reported = self._thinning_reported = False
        self._each_core = self.workers = True

    @property
    def cpu_s(self) -> float:
        """All that was spent so far."""
        return self._book.cpu_s(self._stacks.cpu_s)

    @property
    def worker_cost(self) -> dict[str, float]:
        """Returns the total time workers were observed and the recorder's share of it, both in seconds; empty without workers."""
        seen_ns, self_ns = self._workers_total_ns
        return {"workers_wall_s": seen_ns / 1e9, "workers_self_s": self_ns / 1e9} if seen_ns else {}

    def kept(self, samples: Sequence[Sample]) -> Sequence[Sample]:
        """The samples without those of dropped measurements, which may still arrive."""
        return samples if self._each_core else [sample for sample in samples if not sample.scope.startswith(_EACH_CORE)]

    def look(self, ranks: Iterable[Follower], workers: Iterable[Follower] = (), *, asked_cpu_s: float) -> None:
        """`asked_cpu_s`: CPU seconds of measurements that the user requested, for which no other measurement is dropped."""
        self._check_recorders(ranks)
        self._add_workers(workers)
        share = self._book.over_budget(self.cpu_s - asked_cpu_s)
        name = self._book.next_to_shed(self._active()) if share is not None else None
        if share is None or name is None:
            return
        if name == "stacks":
            self._stacks.sampling = False
        elif name == "cpu_cores":
            self._each_core = False
        elif name == "workers":
            self.workers = False
        elif not self._host.shed(name):
            return
        data: ShedProbe = {"probe": name, "share": share, "budget": self._budget}
        self._writer.put_event(happened(ShedProbe, data, t_ns=time.perf_counter_ns()))
        reason = f"given up: the advisor used {share:.1%} of a core, its budget is {self._budget:.1%}"
        self._writer.put_gap(ProbeGap(name, "host", reason, "raise --overhead-budget"))

    def _active(self) -> list[str]:
        switches = {"stacks": self._stacks.sampling, "cpu_cores": self._each_core, "workers": self.workers}
        return [name for name, on in switches.items() if on] + list(self._host.active)

    def _check_recorders(self, ranks: Iterable[Follower]) -> None:
        """The recorders' own count of their cost. They thin their marks by themselves, so an excess is only reported."""
        now_ns = time.perf_counter_ns()
        for rank in ranks:
            if rank.recent.counted and not self._thinning_reported:
                self._report_thinning(rank, now_ns)
            before_ns, self_ns = self._self_ns.setdefault(rank.pid, (now_ns, rank.position.self_ns))
            if now_ns - before_ns < _RECORDER_OVER_NS:
                continue
            share = (rank.position.self_ns - self_ns) / (now_ns - before_ns)
            self._self_ns[rank.pid] = (now_ns, rank.position.self_ns)
            if share > self._budget and not self._recorder_reported:
                self._recorder_reported = True
                data: RecorderCost = {"share": share, "budget": self._budget}
                self._writer.put_event(happened(RecorderCost, data, t_ns=now_ns, pid=rank.pid, rank=rank.rank))

    def _report_thinning(self, rank: Follower, now_ns: int) -> None:
        self._thinning_reported = True
        share = rank.position.self_ns / max(1, now_ns - rank.first_seen_ns)
        data: ShedProbe = {"probe": MARKS, "share": share, "budget": self._budget}
        self._writer.put_event(happened(ShedProbe, data, t_ns=now_ns, pid=rank.pid, rank=rank.rank))
        reason = (
            "steps are so short that marks in each would exceed the budget: in most, only their boundaries are noted"
        )
        self._writer.put_gap(ProbeGap("steps.phases", "job", reason, "raise --overhead-budget"))

    def _add_workers(self, workers: Iterable[Follower]) -> None:
        now_ns = time.perf_counter_ns()
        seen_ns, self_ns = self._workers_total_ns
        living = {}
        for worker in workers:
            key = worker.pid, worker.first_seen_ns
            before_ns, before_self_ns = self._workers_ns.get(key, (worker.first_seen_ns, 0))
            living[key] = now_ns, worker.position.self_ns
            seen_ns += now_ns - before_ns
            self_ns += worker.position.self_ns - before_self_ns
        self._workers_ns, self._workers_total_ns = living, (seen_ns, self_ns)
