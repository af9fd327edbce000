"""What the launcher's own process does for its watching, so that the job need not: open files, memory, a canary of its own."""

from __future__ import annotations

import os
import queue
import resource
import signal
import threading
import time
from collections import deque

import pytest

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.run import agent, recording_process
from rn50_advisor.advisor.run.agent import Agent
from rn50_advisor.advisor.run.launch import group_canary
from rn50_advisor.advisor.run.processes import host_watch
from rn50_advisor.advisor.run.processes.host_watch import HostNews, HostWatch, MountNews
from rn50_advisor.probes.host.process.process_tree import Member, TreeChange
from rn50_advisor.probes.host.sampler import Tick

MEMBER = Member(7, 1, 1, 1, 1, "python", 0.0, 0.0)
NEWS = HostNews(Tick(5, (Sample("cpu.load1", "host", 1.0),), ()), TreeChange(ended=(MEMBER,)), ())


@pytest.mark.parametrize(
    ("limits", "raised"),
    [
        ((1024, 4096), (4096, 4096)),
        ((1024, 1 << 20), (65_536, 1 << 20)),
        ((1024, resource.RLIM_INFINITY), (65_536, resource.RLIM_INFINITY)),
        ((1 << 20, 1 << 20), None),
        ((resource.RLIM_INFINITY, resource.RLIM_INFINITY), None),
    ],
)
def test_open_files_are_allowed_as_many_as_we_may(
    monkeypatch: pytest.MonkeyPatch, limits: tuple[int, int], raised: tuple[int, int] | None
) -> None:
    found: list[tuple[int, int]] = []
    monkeypatch.setattr(resource, "getrlimit", lambda which: limits)
    monkeypatch.setattr(resource, "setrlimit", lambda which, new: found.append(new))
    recording_process._allow_open_files()
    assert found == ([] if raised is None else [raised])


def test_samples_that_nobody_takes_in_do_not_fill_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(agent, "_NEWS_MAX", 3)
    stuck = Agent.__new__(Agent)  # its thread waits for a disk
    stuck._news = deque()
    for _ in range(5):
        stuck._take_in(NEWS)
    kept = [news for news in stuck._news if isinstance(news, HostNews)]
    assert [len(news.tick.samples) for news in kept] == [1, 1, 1, 0, 0]
    assert all(news.change.ended == (MEMBER,) for news in kept), "who has ended is not forgotten"
    assert "did not answer" in kept[-1].tick.gaps[0].reason


def test_probes_go_on_while_a_mount_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    server, news = threading.Event(), queue.SimpleQueue[object]()
    monkeypatch.setattr(host_watch, "_mount", lambda root: {"fs_type": "nfs4"} if server.wait() else None)
    watch = HostWatch(os.getpid(), period_s=0.01, probes=False, post=news.put)
    watch.want_mount("/dead")
    watch.start()
    seen = [news.get(timeout=30.0) for _ in range(8)]
    assert sum(isinstance(each, HostNews) for each in seen) >= 6, "the machine's facts are among them"
    assert not watch.finish(0.0), "the mount has not answered"
    server.set()
    assert watch.finish(30.0)
    found = []
    while not news.empty():
        found.append(news.get())
    assert MountNews("/dead", {"fs_type": "nfs4"}) in found


def test_a_machine_without_cat_has_a_canary_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_canary, "_PROGRAMS", ())
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        watched = group_canary.Canary()
        assert watched._process is not None
        os.kill(watched._process.pid, signal.SIGUSR1)
        deadline = time.monotonic() + 30.0
        while not watched.group_got(signal.SIGUSR1):
            assert time.monotonic() < deadline and watched._process.poll() is None
        watched.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
