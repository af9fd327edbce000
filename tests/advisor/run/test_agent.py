"""What the agent holds while a disk does not answer is bounded."""

from __future__ import annotations

from collections import deque

import pytest

from rn50_advisor.advisor.model.metrics import Sample
from rn50_advisor.advisor.run import agent
from rn50_advisor.advisor.run.agent import Agent
from rn50_advisor.advisor.run.processes.host_watch import HostNews
from rn50_advisor.probes.host.process.process_tree import Member, TreeChange
from rn50_advisor.probes.host.sampler import Tick

MEMBER = Member(7, 1, 1, 1, 1, "python", 0.0, 0.0)
NEWS = HostNews(Tick(5, (Sample("cpu.load1", "host", 1.0),), ()), TreeChange(ended=(MEMBER,)), ())


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
