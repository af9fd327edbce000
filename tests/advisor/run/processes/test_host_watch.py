"""Host probes and slow files are read in threads of their own."""

from __future__ import annotations

import os
import queue
import threading

import pytest

from rn50_advisor.advisor.run.processes import host_watch
from rn50_advisor.advisor.run.processes.host_watch import HostNews, HostWatch, MachineNews, MountNews
from rn50_advisor.probes.host.topology import host_facts


def test_probes_go_on_while_a_mount_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    server, news = threading.Event(), queue.SimpleQueue[object]()
    monkeypatch.setattr(host_watch, "_mount", lambda root: {"fs_type": "nfs4"} if server.wait() else None)
    watch = HostWatch(os.getpid(), period_s=0.01, probes=False, post=news.put)
    watch.want_mount("/dead")
    watch.start()
    seen = [news.get(timeout=30.0) for _ in range(8)]
    assert sum(isinstance(each, HostNews) for each in seen) >= 6, "the machine's facts are among them"
    (machine,) = (each.facts for each in seen if isinstance(each, MachineNews))
    assert machine["slow_denormals"] in {True, False} and machine["cpu_model"] == host_facts()["cpu_model"]
    assert not watch.finish(0.0), "the mount has not answered"
    server.set()
    assert watch.finish(30.0)
    found = []
    while not news.empty():
        found.append(news.get())
    assert MountNews("/dead", {"fs_type": "nfs4"}) in found
