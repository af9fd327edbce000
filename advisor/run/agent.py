"""Watches the job and writes the run: rings a few times a second, everything slower in threads of its own that post their news here."""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import Any

from advisor.core.metrics import ProbeGap, Sample
from advisor.core.recording import Event
from advisor.merge.part import Part, writer_type
from advisor.run.companion import Plan
from advisor.run.cost import CostBook
from advisor.run.deaths import DeathDesk, OomLedger
from advisor.run.deep import Candidate, DeepDesk
from advisor.run.flight_files import found_dumps
from advisor.run.follow import Followers
from advisor.run.hostwatch import HostNews, HostWatch, MachineNews, MountNews, News, without_samples
from advisor.run.lastwords import last_words
from advisor.run.making import Maker
from advisor.run.meta import first_meta, kept_environment, startup_s
from advisor.run.nccl_lines import NcclLines
from advisor.run.notes import Notes
from advisor.run.options import RunOptions
from advisor.run.roster import Roster
from advisor.run.sources import SourceNews
from advisor.run.stacks import StackWatch
from advisor.run.stderr_files import StderrFiles
from advisor.run.watched import Watched
from advisor.store.failure import RecordingStopped
from advisor.store.schema import OUTPUT_NAME
from advisor.store.secrets import redact_argv
from probes.host.deaths import Death

_HOST_ANSWERS_WITHIN_S = 2.0
_STACKS_END_WITHIN_S = 0.5
_TRACE_READ_WITHIN_S = 4.0
_LEAVING_S = 0.5  # helpers of the job (resource trackers) end a moment after it
_NEWS_TAKES_NS = 1_000_000_000
# A disk that does not answer shall not fill the memory that the job needs: beyond that, samples are dropped.
_NEWS_MAX = 300
_EACH_CORE = "cpu:"
_WAIT_WORTH_SHARE = 0.05  # of the step: a shorter wait for input is nothing to mend


class Agent:
    """Lives in one thread. `run` and `close` raise only on bugs of ours; a recording that cannot go on is an answer."""

    def __init__(self, plan: Plan, job_pid: int) -> None:
        """Raises RecordingStopped or UsageError where the run cannot be made."""
        assert plan.run_folder is not None
        self._plan = plan
        self._options = plan.options
        self._environment: dict[str, Any] = kept_environment(plan.run_folder)
        self._cost = CostBook(
            budget=plan.options.overhead_budget, grace_s=plan.options.stack_dense_s, own_before_s=plan.began_cpu_s
        )
        meta = first_meta(plan)
        self._writer = writer_type(self._options.merge_to).create(plan.run_folder, meta=meta)
        self._news: deque[News | Death | Event] = deque()
        self._part = _part(self._options)
        self._part.start(self._writer, meta, self._news.append)
        self._roster = Roster(self._writer, job_pid, " ".join(redact_argv(plan.argv)))
        self._oom = OomLedger()
        self._host = HostWatch(
            job_pid, period_s=plan.options.period_s, probes=plan.options.host_probes, post=self._take_in
        )
        self._stacks = StackWatch(plan.options, post=self._news.append)
        self._deaths = self._death_desk()
        self._stderr = StderrFiles(plan.stderr_bytes)
        self._followers = Followers(self._writer, self._roster, plan.ring_folder, watch_death=self._watch_death)
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
        self._nccl = NcclLines(
            self._writer.folder / OUTPUT_NAME, os.environ, now_s=time.monotonic(), since_unix_s=plan.began_unix_s
        )
        self._missed: deque[Death] = deque()
        self._self_ns: dict[int, tuple[int, int]] = {}
        self._told_recorder_cost = False
        self._each_core = self._workers = True
        self._polls = 0
        self._stopped: str | None = None
        self._unfinished: str | None = None

    def _take_in(self, news: News) -> None:
        """From the thread of the host probes, which goes on while this one waits for a disk."""
        if isinstance(news, HostNews) and len(self._news) >= _NEWS_MAX:
            news = without_samples(news)
        self._news.append(news)

    def run(self, job_ended: threading.Event) -> str | None:
        """Until the job has ended; why the recording stopped before, if it did."""
        for thread in (self._host, self._stacks, self._deaths):
            if thread is not None:
                thread.start()
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

    def close(self, exit_code: int | None, signal: int | None, ended_ns: int) -> str | None:
        """Write down the end of the job and of the recording."""
        answered = self._end_threads()
        self._at_the_end(self._poll)
        self._at_the_end(lambda: self._believe_the_tree(time.perf_counter_ns() + _NEWS_TAKES_NS))
        self._at_the_end(lambda: self._root_ended(Death(self._roster.root_pid, ended_ns, exit_code, signal)))
        self._at_the_end(lambda: self._last_words(answered))
        if exit_code or signal:
            self._at_the_end(lambda: self._keep_output(ended_ns))
            self._at_the_end(lambda: self._keep_flight(ended_ns))
        self._at_the_end(self._keep_nccl)
        end = {"ended_ns": ended_ns, "exit_code": exit_code, "exit_signal": signal, "agent": self._account()}
        self._at_the_end(lambda: self._writer.put_meta(**end))
        self._at_the_end(self._part.finish)
        self._at_the_end(self._take_gaps)
        self._at_the_end(self._writer.close)
        return self._stopped or self._unfinished

    def note_crash(self, reason: str) -> None:
        """A bug of ours ended `run`: the run says since when nothing was watched."""
        gap = ProbeGap(
            "agent", "job", f"the agent broke off: {reason}", "please report this with the bundle of this run"
        )
        self._record(lambda: self._writer.put_gap(gap))
        self._record(
            lambda: self._writer.put_event(Event(time.perf_counter_ns(), "agent_crash", None, None, {"error": reason}))
        )
        self._record(self._writer.commit)
        self._end_threads()  # nobody takes their news any more

    def _at_the_end(self, action: Any) -> None:
        """A bug of ours in one part of the end must not cost the others: how the job ended is what a run is asked for first."""
        try:
            self._record(action)
        except Exception as error:  # noqa: BLE001 - the launcher tells it when all has been tried
            self._unfinished = (
                self._unfinished or f"the end of the recording broke off: {type(error).__name__}: {error}"
            )

    def _record(self, action: Any) -> None:
        """The writer tells once that it cannot go on; from then on what it is given is dropped."""
        try:
            action()
        except RecordingStopped as stopped:
            self._stopped = stopped.message
            self._stacks.sampling = False

    # -- every poll -------------------------------------------------------------------------------------------------------------

    def _poll(self) -> None:
        self._polls += 1
        now_ns = time.perf_counter_ns()
        self._followers.look(now_ns)
        while self._news:
            self._take(self._news.popleft())
        self._believe_the_tree(now_ns)

    def _take(self, news: News | Death | Event) -> None:
        if isinstance(news, HostNews):
            self._take_tick(news)
        elif isinstance(news, Death):
            self._died(news)
        elif isinstance(news, Event):
            self._writer.put_event(news)
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
        samples = news.tick.samples
        self._oom.note(news.tick.t_ns, samples)
        self._roster.update(news.change, news.members)
        for member in news.change.ended:
            if member.pid != self._roster.root_pid:
                seen = member.exit
                self._missed.append(
                    Death(member.pid, news.tick.t_ns, seen.code if seen else None, seen.signal if seen else None)
                )
        self._writer.put_samples(news.tick.t_ns, samples if self._each_core else _without_cores(samples))
        for gap in news.tick.gaps:
            self._writer.put_gap(gap)

    def _believe_the_tree(self, now_ns: int) -> None:
        """A process is missing from the tree. Who waited for its death knows more, and mostly has told: then this is no news."""
        while self._missed and self._missed[0].t_ns <= now_ns - _NEWS_TAKES_NS:
            self._died(self._missed.popleft())

    def _died(self, death: Death) -> None:
        if self._followers.died(death):
            self._oom.suspect(death)
            self._stderr.ended(death.pid)
        if self._notes:
            self._notes.leave(death.pid)

    def _root_ended(self, death: Death) -> None:
        """The launcher reaped it and is certain; nobody else is asked."""
        self._roster.root_seen(death.t_ns)
        self._died(death)

    # -- every second -----------------------------------------------------------------------------------------------------------

    def _each_second(self) -> None:
        if self._notes:
            self._notes.read()
        self._followers.state_positions()
        for rank in self._followers.ranks():
            self._stderr.watch(rank.pid, rank.rank)
        for pid in self._oom.settle(time.perf_counter_ns()):
            self._roster.mark_oom_killed(pid)
        self._host.targets = tuple(self._followers.targets(with_workers=self._workers))
        self._stacks.watched = self._watched()
        self._stacks.makers = self._makers()
        self._look_deep()
        self._mind_the_cost()
        if self._nccl.due(time.monotonic()):
            self._keep_nccl()
        self._writer.commit()

    def _watched(self) -> tuple[Watched, ...]:
        facts, ranks = self._notes.facts if self._notes else {}, self._followers.ranks()
        return tuple(
            Watched(
                rank=f.rank or 0,
                pid=f.pid,
                ring=f.reader.path,
                ring_made_ns=f.reader.identity.created_ns,
                steps=f.steps,
                outside_share=f.outside_share,
                p99_ns=f.step_p99_ns(),
                whole_p99_ns=f.step_p99_ns(whole=True),
                thread=facts.get(f.pid, {}).get("main_thread"),
                asleep_share=f.asleep_share(alone=len(ranks) == 1),
                group=int(facts.get(f.pid, {}).get("group_size") or 1),
            )
            for f in ranks
        )

    def _look_deep(self) -> None:
        if self._notes:
            ranks = self._followers.ranks()
            seen = [Candidate(f.rank or 0, f.pid, f.steps, f.wait_share, f.outside_share) for f in ranks]
            for news in self._deep.look(seen, self._notes.facts):
                self._take(news)

    def _makers(self) -> tuple[Maker, ...]:
        facts = self._notes.facts if self._notes else {}
        found = self._followers.makers(_WAIT_WORTH_SHARE)
        return tuple(Maker(f.rank or 0, f.pid, facts.get(f.pid, {}).get("main_thread")) for f in found)

    def _mind_the_cost(self) -> None:
        self._mind_the_recorder()
        # a deep window was asked for: what its trace takes to read is no reason to give up other measurements
        share = self._cost.over_budget(self._cost.cpu_s(self._stacks.cpu_s) - self._deep.cpu_s)
        name = self._cost.next_to_shed(self._active()) if share is not None else None
        if share is None or name is None:
            return
        if name == "stacks":
            self._stacks.sampling = False
        elif name == "cpu_cores":
            self._each_core = False
        elif name == "workers":
            self._workers = False
        elif not self._host.shed(name):
            return
        data = {"probe": name, "share": share, "budget": self._options.overhead_budget}
        self._writer.put_event(Event(time.perf_counter_ns(), "shed", None, None, data))
        reason = f"given up: the advisor took {share:.1%} of a core, its budget is {self._options.overhead_budget:.1%}"
        self._writer.put_gap(ProbeGap(name, "host", reason, "raise --overhead-budget"))

    def _active(self) -> list[str]:
        switches = {"stacks": self._stacks.sampling, "cpu_cores": self._each_core, "workers": self._workers}
        return [name for name, on in switches.items() if on] + list(self._host.active)

    def _mind_the_recorder(self) -> None:
        """Its own count of its cost. It cannot be given up, but nobody shall be left in the dark."""
        now_ns = time.perf_counter_ns()
        for follower in self._followers.ranks():
            before_ns, self_ns = self._self_ns.setdefault(follower.pid, (now_ns, follower.position.self_ns))
            if now_ns - before_ns < 30_000_000_000:
                continue
            share = (follower.position.self_ns - self_ns) / (now_ns - before_ns)
            self._self_ns[follower.pid] = (now_ns, follower.position.self_ns)
            if share > self._options.overhead_budget and not self._told_recorder_cost:
                self._told_recorder_cost = True
                data = {"share": share, "budget": self._options.overhead_budget}
                self._writer.put_event(Event(now_ns, "recorder_cost", follower.pid, follower.rank, data))

    # -- the end ----------------------------------------------------------------------------------------------------------------

    def _end_threads(self) -> bool:
        answered = self._host.finish(_HOST_ANSWERS_WITHIN_S)
        self._stacks.finish(_STACKS_END_WITHIN_S)
        if self._deaths is not None:
            self._deaths.finish()
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
        for pid in self._oom.settle(time.perf_counter_ns(), last=True):
            self._roster.mark_oom_killed(pid)
        if not host_answered:
            self._writer.put_gap(
                ProbeGap("host.*", "host", "a probe did not answer at the end of the run", "see dmesg")
            )
        if self._plan.ring_folder is None:
            reason = "the recorder could not be brought into the job"
            self._writer.put_gap(ProbeGap("steps", "job", reason, "see the warning at the start of the run"))
        elif not self._followers.ranks_seen:
            hint = (
                "python -I, -S or -E keeps the recorder out; so does a job that drops PYTHONPATH or runs in a container"
            )
            self._writer.put_gap(
                ProbeGap("steps", "job", "no process of the job trained in view of the recorder", hint)
            )
        self._tell_survivors()
        self._followers.close()

    def _keep_flight(self, ended_ns: int) -> None:
        """What a watchdog that ended the job has written of the last collectives."""
        dumps = found_dumps(os.environ, self._plan.began_unix_s)
        if dumps:
            data = {"ranks": {str(rank): dump for rank, dump in dumps.items()}}
            self._writer.put_event(Event(ended_ns, "flight", None, None, data))

    def _keep_nccl(self) -> None:
        """What NCCL has said of itself, where the user asked it to."""
        lines = self._nccl.look()
        if lines:
            self._writer.put_event(Event(time.perf_counter_ns(), "nccl_log", None, None, {"lines": lines}))

    def _keep_output(self, ended_ns: int) -> None:
        """What it said of its failure: behind the screen, or into files."""
        written, gaps = self._stderr.last_lines()
        lines = [*last_words(self._writer.folder), *written]
        if lines:
            self._writer.put_event(Event(ended_ns, "output", None, None, {"lines": lines}))
        for gap in gaps:
            self._writer.put_gap(gap)

    def _tell_survivors(self) -> None:
        """Processes that the job left running are the user's business; the run names them."""
        left = self._roster.survivors(_LEAVING_S)
        if left:
            data = {"processes": [{"pid": m.pid, "command": m.command} for m in left]}
            self._writer.put_event(Event(time.perf_counter_ns(), "left_running", None, None, data))

    def _take_gaps(self) -> None:
        """What a merge had to say at its end."""
        for gap in [news for news in self._news if isinstance(news, ProbeGap)]:
            self._writer.put_gap(gap)

    def _account(self) -> dict[str, float]:
        return {
            "cpu_s": self._cost.cpu_s(self._stacks.cpu_s),
            "wall_s": (time.perf_counter_ns() - self._plan.began_ns) / 1e9,
            "startup_s": startup_s(self._plan.began_ns),
            "lost_records": self._followers.lost_records,
            "records": self._followers.records,
            "polls": self._polls,
            "stacks_cpu_s": self._stacks.cpu_s,
        }

    def _death_desk(self) -> DeathDesk | None:
        try:
            return DeathDesk(self._news.append)
        except OSError as error:
            reason = f"the kernel gives no epoll: {error.strerror}"
            self._news.append(ProbeGap("deaths", "job", reason, "raise the limit of open files"))
            return None

    def _watch_death(self, pid: int) -> None:
        if self._deaths is not None and pid != self._roster.root_pid:
            self._deaths.watch(pid)


def _part(options: RunOptions) -> Part:
    return Part(
        listen=options.merge_listen,
        to=options.merge_to,
        token_file=options.merge_token_file,
        period_s=options.merge_period_s,
    )


def _next_deadline(last_s: float, period_s: float, now_s: float) -> float:
    """Fixed deadlines; those that were missed are skipped."""
    return last_s + period_s * (int((now_s - last_s) / period_s) + 1) if now_s >= last_s else last_s


def _without_cores(samples: tuple[Sample, ...]) -> list[Sample]:
    return [sample for sample in samples if not sample.scope.startswith(_EACH_CORE)]
