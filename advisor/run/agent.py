"""Watches the job and writes the run: reads rings a few times a second; slower sources run in threads that post their results here."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from rn50_advisor.advisor.merge.live_merge import Part
from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.model.recording import AnyEvent, Event, happened
from rn50_advisor.advisor.run.hangs.watched_ranks import watched_ranks
from rn50_advisor.advisor.run.outlet_companion import OutletCompanion
from rn50_advisor.advisor.run.overhead_budget import OverheadBudget
from rn50_advisor.advisor.run.own_usage import CostBook
from rn50_advisor.advisor.run.processes.departures import Departures
from rn50_advisor.advisor.run.processes.host_watch import (
    HostNews,
    HostWatch,
    MachineNews,
    MountNews,
    News,
    without_samples,
)
from rn50_advisor.advisor.run.processes.process_roster import Roster
from rn50_advisor.advisor.run.recording_plan import RecordingPlan
from rn50_advisor.advisor.run.rings.ring_followers import Followers
from rn50_advisor.advisor.run.run_meta import first_meta, kept_environment, startup_s
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.run.sidefiles.deep_requests import Candidate, DeepDesk
from rn50_advisor.advisor.run.sidefiles.job_sources import SourceNews
from rn50_advisor.advisor.run.sidefiles.job_words import JobWords
from rn50_advisor.advisor.run.sidefiles.rank_notes import Notes
from rn50_advisor.advisor.run.stacks.batch_making import makers_of
from rn50_advisor.advisor.run.stacks.stack_thread import StackWatch
from rn50_advisor.advisor.store.recording_failure import RecordingStopped
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.advisor.store.secrets.masking import redact_argv
from rn50_advisor.probes.documents.event_documents import AgentCrash, EndRequest
from rn50_advisor.probes.documents.machine_documents import MachineFacts
from rn50_advisor.probes.host.process.death_watch import ProcessDeath

_HOST_ANSWERS_WITHIN_S = 2.0
_STACKS_END_WITHIN_S = 0.5
_TRACE_READ_WITHIN_S = 4.0
_LEAVING_S = 0.5  # helpers of the job (resource trackers) end a moment after it
# An unresponsive disk must not fill the memory that the job needs: above this, samples are dropped.
_NEWS_MAX = 300
_WAIT_WORTH_SHARE = 0.05  # share of the step: a shorter input wait needs no fix
_CROWD_WORTH_SHARE = 0.2  # of the cores, that workers keep busy: training may wait for these


class Agent:
    """Runs in one thread. `run` and `close` raise only because of our own bugs; a recording that cannot continue is a return value."""

    def __init__(self, plan: RecordingPlan, job_pid: int, requests: deque[tuple[int, int]]) -> None:
        """`requests`: when (ns) and by which signal the job was asked to end; they are taken from it.

        Raises RecordingStopped or UsageError where the run cannot be made.
        """
        assert plan.run_folder is not None
        self._plan = plan
        self._requests = requests
        self._options = plan.options
        self._environment: MachineFacts = kept_environment(plan.run_folder)
        book = CostBook(budget=plan.options.overhead_budget, grace_s=plan.options.stack_dense_s)
        self._writer = RunWriter.create(plan.run_folder, meta=first_meta(plan))
        self._news: deque[News | ProcessDeath | AnyEvent] = deque()
        self._part = _part(self._options)
        self._part.start(plan.run_folder, self._news.append)
        self._outlets = OutletCompanion(plan, self._news.append)
        self._outlets.start()
        self._roster = Roster(self._writer, job_pid, " ".join(redact_argv(plan.argv)))
        self._departures = Departures(self._roster, self._news.append)
        self._host = HostWatch(
            job_pid, period_s=plan.options.period_s, probes=plan.options.host_probes, post=self._take_in
        )
        self._stacks = StackWatch(plan.options, post=self._news.append)
        self._overhead = OverheadBudget(
            book, self._writer, host=self._host, stacks=self._stacks, budget=plan.options.overhead_budget
        )
        self._words = JobWords(
            self._writer,
            launcher_pid=plan.launcher_pid,
            printed_before=plan.printed_before,
            since_unix_s=plan.began_unix_s,
        )
        self._followers = Followers(self._writer, self._roster, plan.ring_folder, watch_death=self._departures.watch)
        self._notes = plan.ring_folder and Notes(
            self._writer,
            plan.ring_folder,
            want_mount=self._host.want_mount,
            want_source=self._host.want_source,
        )
        self._deep = DeepDesk(
            plan.ring_folder,
            plan.run_folder,
            mode=plan.options.deep,
            budget=plan.options.overhead_budget,
        )
        self._polls = 0
        self._stopped: str | None = None
        self._unfinished: str | None = None

    def _take_in(self, news: News) -> None:
        """Called in the host probes' thread, which continues while this one waits for a disk."""
        if isinstance(news, HostNews) and len(self._news) >= _NEWS_MAX:
            news = without_samples(news)
        self._news.append(news)

    def run(self, job_ended: threading.Event) -> str | None:
        """Runs until the job ends; returns the reason if the recording stopped earlier."""
        self._host.start()
        self._stacks.start()
        self._departures.start()
        poll_s, second_s = self._options.poll_s, self._options.period_s
        poll_at_s = second_at_s = time.monotonic()
        while not job_ended.is_set():
            now_s = time.monotonic()
            self._record(self._poll)
            if now_s >= second_at_s:
                self._record(self._each_second)
                second_at_s = _next_deadline(second_at_s, second_s, now_s)
            poll_at_s = _next_deadline(poll_at_s, second_s if self._stopped else poll_s, now_s)
            job_ended.wait(max(0.0, poll_at_s - time.monotonic()))
        return self._stopped

    def close(self, end: Mapping[str, Any]) -> str | None:
        """Writes the end of the job and of the recording. `end`: exit_code or signal, t_ns, and the CPU seconds of the launcher."""
        exit_code, signal, ended_ns = end["exit_code"], end["signal"], end["t_ns"]
        answered = self._end_threads()
        self._at_the_end(self._poll)
        self._at_the_end(lambda: self._take_inferred_deaths(last=True))
        self._at_the_end(lambda: self._root_ended(ProcessDeath(self._roster.root_pid, ended_ns, exit_code, signal)))
        self._at_the_end(lambda: self._last_words(answered))
        if exit_code or signal:
            self._at_the_end(lambda: self._words.keep_output(ended_ns))
            self._at_the_end(lambda: self._words.keep_flight(ended_ns))
        self._at_the_end(self._words.keep_nccl)
        ending = {
            "ended_ns": ended_ns,
            "exit_code": exit_code,
            "exit_signal": signal,
            "agent": self._account(end["cpu_s"]),
        }
        self._at_the_end(lambda: self._writer.put_meta(**ending))
        self._at_the_end(self._writer.commit)  # a live merge sends what is committed, and outlets read it
        self._outlets.end()
        self._at_the_end(self._part.finish)
        self._at_the_end(lambda: self._end_outlets(end["cpu_s"]))
        self._at_the_end(self._take_gaps)
        self._at_the_end(self._writer.close)
        return self._stopped or self._unfinished

    def leave(self) -> str | None:
        """Ends the recording after the launcher was killed: the job's end is unknown, and a merging node simply loses this one."""
        self._end_threads()
        self._at_the_end(self._poll)
        since = {
            "recording_stopped_ns": time.perf_counter_ns(),
            "recording_stopped_reason": "the launcher was killed, and the job goes on without it",
        }
        self._at_the_end(lambda: self._writer.put_meta(**since))
        self._at_the_end(self._writer.close)
        return self._stopped or self._unfinished

    def note_crash(self, reason: str) -> None:
        """Records that nothing is watched from now on, after one of our own bugs ended `run`."""
        gap = ProbeGap("agent", "job", f"the agent stopped: {reason}", "please report this with the bundle of this run")
        self._record(lambda: self._writer.put_gap(gap))
        crash: AgentCrash = {"error": reason}
        self._record(lambda: self._writer.put_event(happened(AgentCrash, crash, t_ns=time.perf_counter_ns())))
        self._record(self._writer.commit)
        self._end_threads()  # their results are no longer read

    def _at_the_end(self, action: Any) -> None:
        """Runs one part of the end. Our own bug in it must not prevent the other parts: recording the job's end matters most."""
        try:
            self._record(action)
        except Exception as error:  # noqa: BLE001 - the launcher reports it after all parts
            self._unfinished = self._unfinished or f"finishing the recording failed: {type(error).__name__}: {error}"

    def _record(self, action: Any) -> None:
        """The writer reports once that it cannot go on, and drops everything after that."""
        try:
            action()
        except RecordingStopped as stopped:
            self._stopped = stopped.message
            self._stacks.sampling = False

    # -- every poll -------------------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        self._polls += 1
        self._followers.look(time.perf_counter_ns())
        while self._news:
            self._take(self._news.popleft())
        while self._requests:
            t_ns, number = self._requests.popleft()
            self._writer.put_event(happened(EndRequest, {"signal": number}, t_ns=t_ns))
        self._take_inferred_deaths()

    def _take(self, news: News | ProcessDeath | AnyEvent) -> None:
        if isinstance(news, HostNews):
            self._take_tick(news)
        elif isinstance(news, ProcessDeath):
            self._died(news)
        elif isinstance(news, Event):
            self._writer.put_event(news)
            if self._notes:
                self._notes.profiled(news)
        elif isinstance(news, ProbeGap):
            self._writer.put_gap(news)
        elif isinstance(news, MountNews):
            if self._notes:
                self._notes.mount_found(news.root, news.mount)
        elif isinstance(news, SourceNews):
            if self._notes:
                self._notes.sources.found(news)
        elif isinstance(news, MachineNews):
            self._environment |= news.facts
            self._writer.put_meta(environment=self._environment)

    def _take_tick(self, news: HostNews) -> None:
        self._departures.note(news.tick, news.change.ended)
        self._roster.update(news.change, news.members)
        self._writer.put_samples(news.tick.t_ns, self._overhead.kept(news.tick.samples))
        for gap in news.tick.gaps:
            self._writer.put_gap(gap)

    def _take_inferred_deaths(self, *, last: bool = False) -> None:
        for death in self._departures.inferred(time.perf_counter_ns(), last=last):
            self._died(death)

    def _died(self, death: ProcessDeath) -> None:
        if self._followers.died(death):
            self._departures.suspect(death)
            self._words.ended(death.pid)
        if self._notes:
            self._notes.leave(death.pid)

    def _root_ended(self, death: ProcessDeath) -> None:
        """The launcher reaped the process, so its status is certain and no other source is used."""
        self._roster.root_seen(death.t_ns)
        self._died(death)

    # -- every second -----------------------------------------------------------------------------------------------------------

    def _each_second(self) -> None:
        if self._notes:
            self._notes.read()
        self._followers.state_positions()
        ranks, facts = self._followers.ranks(), self._notes.facts if self._notes else {}
        self._words.look(ranks)
        self._outlets.look()
        self._departures.settle(time.perf_counter_ns())
        self._host.targets = tuple(self._followers.targets(with_workers=self._overhead.workers))
        self._stacks.watched = watched_ranks(ranks, facts)
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        makers = self._followers.makers(_WAIT_WORTH_SHARE, _CROWD_WORTH_SHARE * cores, time.perf_counter_ns())
        self._stacks.makers = makers_of(makers, facts)
        self._look_deep()
        # the user requested the deep window: reading its trace must not cost other measurements
        self._overhead.look(ranks, self._followers.workers(), asked_cpu_s=self._deep.cpu_s)
        self._writer.commit()

    def _look_deep(self) -> None:
        if self._notes:
            ranks = self._followers.ranks()
            seen = [
                Candidate(f.rank or 0, f.pid, s.steps, s.wait_share, s.outside_share, s.idle_share)
                for f, s in ((f, f.recent) for f in ranks)
            ]
            for news in self._deep.look(seen, self._notes.facts):
                self._take(news)

    # -- the end ----------------------------------------------------------------------------------------------------------------

    def _end_threads(self) -> bool:
        answered = self._host.finish(_HOST_ANSWERS_WITHIN_S)
        self._stacks.finish(_STACKS_END_WITHIN_S)
        self._departures.finish()
        return answered

    def _last_words(self, host_answered: bool) -> None:
        self._followers.look(time.perf_counter_ns())
        if self._notes:
            self._notes.read()
            if host_answered:  # no file system hangs
                self._notes.sources.finish()
            self._look_deep()
            for news in self._deep.finish(_TRACE_READ_WITHIN_S):
                self._take(news)
        self._followers.state_positions()
        self._departures.settle(time.perf_counter_ns(), last=True)
        if not host_answered:
            self._writer.put_gap(
                ProbeGap("host.*", "host", "a probe did not answer at the end of the run", "see dmesg")
            )
        if self._plan.ring_folder is None:
            reason = "the recorder could not be injected into the job"
            self._writer.put_gap(ProbeGap("steps", "job", reason, "see the warning at the start of the run"))
        elif not self._followers.ranks_seen:
            hint = (
                "python -I, -S or -E keeps the recorder out; so does a job that drops PYTHONPATH or runs in a container, and "
                "a full /dev/shm"
            )
            self._writer.put_gap(ProbeGap("steps", "job", "the recorder saw no process of the job train", hint))
        self._roster.record_survivors(_LEAVING_S)
        self._followers.close()

    def _take_gaps(self) -> None:
        """Takes over the gaps that a merge and outlets reported at their end."""
        for gap in [news for news in self._news if isinstance(news, ProbeGap)]:
            self._writer.put_gap(gap)

    def _end_outlets(self, launcher_cpu_s: float) -> None:
        self._outlets.finish()
        if self._outlets.started:  # the last reading has its cost, too
            self._writer.put_meta(agent=self._account(launcher_cpu_s))

    def _account(self, launcher_cpu_s: float) -> dict[str, float]:
        return {
            "cpu_s": self._overhead.cpu_s + self._outlets.cpu_s + launcher_cpu_s,
            "wall_s": (time.perf_counter_ns() - self._plan.began_ns) / 1e9,
            "startup_s": startup_s(self._plan),
            "lost_records": self._followers.lost_records,
            "records": self._followers.records,
            "polls": self._polls,
            "stacks_cpu_s": self._stacks.cpu_s,
            **self._overhead.worker_cost,
        }


def _part(options: RunOptions) -> Part:
    return Part(
        listen=options.merge_listen,
        to=options.merge_to,
        token_file=options.merge_token_file,
        period_s=options.merge_period_s,
    )


def _next_deadline(last_s: float, period_s: float, now_s: float) -> float:
    """Fixed deadlines; missed ones are skipped."""
    return last_s + period_s * (int((now_s - last_s) / period_s) + 1) if now_s >= last_s else last_s
