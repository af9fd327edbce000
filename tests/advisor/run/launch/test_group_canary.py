"""The process in the job's group that says which signals the whole group got."""

from __future__ import annotations

import os
import signal
import time

import pytest

from rn50_advisor.advisor.run.launch import group_canary


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
