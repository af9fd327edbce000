"""All processes of a job rest while others compute, and the rests are taken out of its clock."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import psutil
import pytest

from recordings import plan, recording
from rn50_advisor.advisor.trials.resting import Family, rested_ns, without_rests

PARENT = (
    "import subprocess, sys, time\n"
    "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'], start_new_session=True)\n"
    "print('ready', flush=True)\n"
    "time.sleep(60)\n"
)


@pytest.fixture
def parent() -> Iterator[psutil.Process]:
    process = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    family = psutil.Process(process.pid).children()
    yield psutil.Process(process.pid)
    for each in [*family, process]:
        each.kill()
    process.wait()
    process.stdout.close()


def states(parent: psutil.Process) -> set[str]:
    family = [parent, *parent.children(recursive=True)]
    assert len(family) == 2, "the child is in a session of its own"
    return {each.status() for each in family}


def test_all_processes_of_a_job_rest_and_go_on(parent: psutil.Process) -> None:
    family = Family(parent.pid)
    family.rest()
    assert states(parent) == {psutil.STATUS_STOPPED}
    family.rest()
    family.compute()
    assert psutil.STATUS_STOPPED not in states(parent)
    [(begin, end)] = family.rests
    assert begin < end
    family.compute()
    assert len(family.rests) == 1, "it was computing"


def test_memory_is_that_of_all_processes(parent: psutil.Process) -> None:
    both = [each.memory_full_info().pss for each in (parent, *parent.children())]
    assert Family(parent.pid).memory_bytes() > 1.2 * max(both), "they share what they share with other processes, too"


def test_a_job_that_has_ended_rests_without_a_word() -> None:
    process = subprocess.Popen([sys.executable, "-c", ""])
    family = Family(process.pid)
    process.wait()
    family.rest()
    family.compute()
    assert family.pids() == set()


def test_time_stands_still_in_rests() -> None:
    times = np.array([5, 10, 15, 20, 45, 50], np.int64)
    assert rested_ns(times, [(10, 20), (40, 45)]).tolist() == [0, 0, 5, 10, 15, 15]
    assert rested_ns(times, []).tolist() == [0] * 6


def test_the_times_of_a_recording_are_moved_and_the_recording_is_left_alone() -> None:
    made = recording({0: plan(20)})
    rows = made.steps[0]
    halfway = int(rows["t_end_ns"][9])
    moved = without_rests(made, [(halfway, halfway + 1_000_000)]).steps[0]
    assert (rows["t_end_ns"] - moved["t_end_ns"]).tolist() == [0] * 10 + [1_000_000] * 10
    assert made.steps[0]["t_end_ns"][9] == halfway


def test_another_process_that_got_the_pid_is_left_alone(
    parent: psutil.Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    family = Family(parent.pid)
    monkeypatch.setattr(family._root, "_ident", (parent.pid, parent.create_time() - 100.0))
    family.rest()
    assert psutil.STATUS_STOPPED not in states(parent)
    assert family.pids() == set()
