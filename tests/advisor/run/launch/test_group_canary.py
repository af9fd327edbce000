"""The process in the job's group that says which signals the whole group got."""

from __future__ import annotations

import os
import signal
import subprocess
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


@pytest.mark.parametrize("reaches", ["both", "the old one alone"])
def test_a_signal_while_one_takes_over_from_the_other_counts_once(
    monkeypatch: pytest.MonkeyPatch, reaches: str
) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        watched = group_canary.Canary()
        started, [old] = group_canary._start, watched.pids()

        def start_and_signal() -> subprocess.Popen[bytes] | None:
            made = started()
            assert made is not None
            for pid in (old, made.pid) if reaches == "both" else (old,):
                os.kill(pid, signal.SIGUSR1)
            return made

        monkeypatch.setattr(group_canary, "_start", start_and_signal)
        watched.renew()
        monkeypatch.setattr(group_canary, "_start", started)
        assert watched.group_got(signal.SIGUSR1, patient=False)
        watched.renew()
        assert not watched.group_got(signal.SIGUSR1, patient=False), "the next one is for us alone"
        watched.close()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
