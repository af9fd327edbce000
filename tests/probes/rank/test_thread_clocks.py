"""Clocks that the kernel keeps of one thread."""

from __future__ import annotations

import os
import threading
import types
from pathlib import Path
from time import sleep

import pytest

from rn50_advisor.probes.rank import thread_clocks
from rn50_advisor.probes.rank.thread_clocks import RunDelay, Sending, cpu_of_thread_ns


def test_a_thread_that_has_ended_is_unknown_and_no_crash() -> None:
    other = threading.Thread(target=threading.get_native_id)
    other.start()
    other.join()
    assert other.native_id is not None
    while Path(f"/proc/self/task/{other.native_id}").exists():
        sleep(0.001)  # it has reported its end, and is about to end
    with pytest.raises(OSError):
        cpu_of_thread_ns(other.native_id)
    assert Sending(types.SimpleNamespace(_thread=other))() == -1
    assert cpu_of_thread_ns(threading.get_native_id()) > 0


def test_reads_and_kernel_time_are_one_question(monkeypatch: pytest.MonkeyPatch) -> None:
    usage = types.SimpleNamespace(ru_inblock=7, ru_stime=0.25)
    monkeypatch.setattr(thread_clocks.resource, "getrusage", lambda who: usage)
    assert (
        thread_clocks.reads_and_system_ns()
        == (thread_clocks.blocks_read(), thread_clocks.system_time_ns())
        == (7, 250_000_000)
    )


@pytest.mark.parametrize(
    ("text", "kept"), [(b"1207 3300 12\n", True), (b"1207 0 1\n", True), (b"0 0 0\n", False), (b"", False)]
)
def test_a_kernel_that_writes_zeros_keeps_no_clock(monkeypatch: pytest.MonkeyPatch, text: bytes, kept: bool) -> None:
    monkeypatch.setattr(thread_clocks.os, "open", lambda path, flags: os.dup(0))
    monkeypatch.setattr(thread_clocks.os, "pread", lambda descriptor, count, offset: text)
    assert bool(RunDelay()) is kept
