"""Looks into processes: what they found, and the CPU seconds that they took."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.advisor.run.stacks.stack_looker import CountedStacks, Looker, Stacks
from rn50_advisor.probes.host.stacks.process_stacks import Frame, ThreadStack
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack

STACKS: Stacks = (ThreadStack(7, "MainThread", True, True, (Frame("train", "/job/train.py", 3),)),)
WHOLE: CountedStacks = (CountedStack(7, "MainThread", (Frame("read", "/lib/socket.py", 7),), 80),)
AWAKE: CountedStacks = (CountedStack(7, "MainThread", (Frame("train", "/job/train.py", 3),), 8),)
REFUSED = ProbeGap("stacks", "pid:7", "not permitted")


def works(pid: int) -> Stacks:
    """As py-spy does: in a process of its own, for 0.1 s of CPU time."""
    busy = "import time\nwhile time.process_time() < 0.1: pass"
    subprocess.run([sys.executable, "-IS", "-c", busy], check=True, timeout=60)
    return STACKS


def test_a_look_costs_what_the_process_took_that_looked() -> None:
    looker = Looker(dump=works)
    found, cost_s = looker.dump(7)
    assert found == STACKS
    assert cost_s >= 0.1
    looker.dump(7)
    assert looker.cpu_s >= 0.2


def test_who_only_reads_costs_nothing() -> None:
    looker = Looker(dump=lambda pid: STACKS, profile=lambda pid: WHOLE)
    # what children took before is added up and taken off again
    assert looker.dump(7) == (STACKS, pytest.approx(0.0, abs=1e-9))
    assert looker.profile(7, awake=False) == (WHOLE, None, pytest.approx(0.0, abs=1e-9))
    assert looker.cpu_s == pytest.approx(0.0, abs=1e-9)


@pytest.mark.parametrize(
    ("profiled", "awake", "expected"),
    [
        (WHOLE, False, (WHOLE, None)),
        (WHOLE, True, (WHOLE, AWAKE)),
        (REFUSED, True, (REFUSED, None)),  # it would be refused again
        ((), True, ((), AWAKE)),
    ],
)
def test_a_second_profile_is_taken_only_after_a_first_one(profiled: Any, awake: bool, expected: Any) -> None:
    looker = Looker(profile=lambda pid: profiled, profile_awake=lambda pid: AWAKE)
    assert looker.profile(7, awake=awake)[:2] == expected


def test_three_refusals_are_enough() -> None:
    looker = Looker(dump=lambda pid: REFUSED)
    assert not looker.refused
    looker.refusals = 2
    assert not looker.refused
    looker.refusals += 1
    assert looker.refused
