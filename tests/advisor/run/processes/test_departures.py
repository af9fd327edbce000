"""Ends of processes, from the source that knows them first and best."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.run.processes.departures import Departures
from rn50_advisor.advisor.run.processes.process_roster import Roster
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.host.process.death_watch import ProcessDeath
from rn50_advisor.probes.host.process.process_tree import ExitStatus, Member, TreeChange
from rn50_advisor.probes.host.sampler import Tick

S = 1_000_000_000
ROOT = 1


@pytest.fixture
def writer(tmp_path: Path) -> RunWriter:
    return RunWriter.create(tmp_path / "run", meta={})


@pytest.fixture
def roster(writer: RunWriter) -> Roster:
    return Roster(writer, ROOT, "job")


def member(pid: int, ended: ExitStatus | None = None) -> Member:
    return Member(pid, ROOT, 1, 1, 1, "python", 0.0, 0.0, ended is not None, ended)


def tick(t_s: float, kills: float | None = None) -> Tick:
    samples = () if kills is None else (Sample("mem.oom_kills", "host", kills),)
    return Tick(round(t_s * S), samples, ())


def test_a_real_death_is_posted_with_its_status(roster: Roster) -> None:
    news: queue.Queue[Any] = queue.Queue()
    departures = Departures(roster, news.put)
    departures.start()
    child = subprocess.Popen(["cat"], stdin=subprocess.PIPE)
    departures.watch(child.pid)
    child.send_signal(signal.SIGUSR1)
    death = news.get(timeout=30)
    departures.finish()
    child.wait()
    assert child.stdin is not None
    child.stdin.close()
    assert (death.pid, death.exit_code, death.signal) == (child.pid, None, signal.SIGUSR1)


def test_the_jobs_main_process_is_left_to_the_launcher(writer: RunWriter) -> None:
    news: queue.Queue[Any] = queue.Queue()
    child, other = (subprocess.Popen(["cat"], stdin=subprocess.PIPE) for _ in range(2))
    departures = Departures(Roster(writer, child.pid, "job"), news.put)
    departures.start()
    for process in (child, other):
        departures.watch(process.pid)
        process.communicate()
    assert news.get(timeout=30).pid == other.pid
    departures.finish()
    assert news.empty()


def test_what_the_tree_misses_is_believed_only_after_a_second(roster: Roster) -> None:
    departures = Departures(roster, lambda news: None)
    departures.note(tick(5.0), [member(7, ExitStatus(3, None)), member(ROOT), member(8)])
    departures.note(tick(5.5), [member(9)])
    assert list(departures.inferred(round(5.9 * S))) == []
    assert list(departures.inferred(6 * S)) == [ProcessDeath(7, 5 * S, 3, None), ProcessDeath(8, 5 * S, None, None)]
    assert list(departures.inferred(6 * S)) == []
    assert list(departures.inferred(6 * S, last=True)) == [ProcessDeath(9, round(5.5 * S), None, None)]


@pytest.mark.parametrize(("kills", "taken"), [(1.0, True), (0.0, False)])
def test_a_kill_that_the_kernel_counted_is_noted_at_its_process(
    roster: Roster, writer: RunWriter, kills: float, taken: bool
) -> None:
    victim = member(7)
    roster.update(TreeChange(started=(victim,)), (victim,))
    departures = Departures(roster, lambda news: None)
    departures.note(tick(1.0, 0.0), ())
    death = ProcessDeath(7, 10 * S, None, signal.SIGKILL)
    roster.died(death, clean_exit=None)
    departures.suspect(death)
    departures.note(tick(11.0, kills), ())
    departures.settle(11 * S)  # too soon to be judged
    departures.settle(20 * S)
    departures.settle(20 * S, last=True)
    writer.close()
    (process,) = read_recording(writer.folder).processes
    assert bool(process.oom_killed) == taken


def test_without_epoll_it_says_so_and_goes_on(roster: Roster) -> None:
    """No descriptor is left for it: a limit of the process, so it is set in one of its own."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            import resource

            resource.setrlimit(resource.RLIMIT_NOFILE, (0, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            news: list[Any] = []
            departures = Departures(roster, news.append)
            departures.start()
            departures.watch(os.getppid())
            departures.finish()
            code = 0 if [gap.metric for gap in news] == ["deaths"] else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_a_process_that_is_first_seen_at_the_end_is_not_waited_for(roster: Roster) -> None:
    departures = Departures(roster, lambda _: None)
    departures.start()
    departures.finish()
    departures.watch(os.getpid())
