"""One job of a trial: real processes under the recorder, which rest, go on, and end without a word of their own."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from rn50_advisor.advisor.trials.trial_job import Order, TrialFailed, TrialJob
from waiting import wait_for

SAVES = """
import atexit, os, signal, sys, time
def save(*_):
    open("saved", "w").close()
    sys.exit(0)
atexit.register(save)
signal.signal(signal.SIGTERM, save)
print("ready", os.environ.get("FROM_THE_ORDER"), os.environ.get("NOT_WANTED"), flush=True)
time.sleep(600)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def order(code: str, environment: Mapping[str, str | None] | None = None) -> Order:
    return Order((sys.executable, "-c", code), environment or {}, {"changes": [], "live": None})


def test_it_ends_without_saving_anything_and_nothing_of_it_is_left(folder: Path) -> None:
    job = TrialJob(order(SAVES), folder / "job")
    try:
        wait_for(lambda: not job.computes_for(0.05) or "ready" in job.last_words(), "the job's start")
        family = [psutil.Process(pid) for pid in job.family.pids()]
        job.family.rest()
    finally:
        job.end()
    assert job.job_pid in {process.pid for process in family}
    wait_for(lambda: not any(process.is_running() for process in family), "their end")
    assert not (folder / "saved").exists()
    job.end()


def test_variables_of_the_order_are_set_and_unset(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOT_WANTED", "1")
    job = TrialJob(order(SAVES, {"FROM_THE_ORDER": "yes", "NOT_WANTED": None}), folder / "job")
    try:
        wait_for(lambda: not job.computes_for(0.05) or "ready" in job.last_words(), "the job's start")
        assert "ready yes None" in job.last_words()
    finally:
        job.end()


def test_a_job_that_fails_says_how_and_with_which_words(folder: Path) -> None:
    job = TrialJob(order("print('no data'); raise SystemExit(3)"), folder / "job")
    try:
        with pytest.raises(TrialFailed, match="ended with 3") as failure:
            wait_for(lambda: not job.computes_for(0.2), "its end")
        assert failure.value.hint == "no data"
    finally:
        job.end()


def test_a_job_that_has_done_its_work_has_ended_and_without_steps_there_is_no_recording_of_any(folder: Path) -> None:
    job = TrialJob(order("import time; time.sleep(0.2)"), folder / "job")
    try:
        wait_for(lambda: not job.computes_for(0.2), "its end")
        assert job.exit_code == 0
        recording = job.recording()
        assert recording is None or recording.steps == {}
    finally:
        job.end()
