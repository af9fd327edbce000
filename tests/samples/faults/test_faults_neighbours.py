"""Cores used by others while a job ran: the kernel's count less our own, over the cores that we may use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from samples.faults.neighbours import Neighbours, Ticks, between, read_ticks


@pytest.mark.parametrize(
    ("busy_s", "stolen_s", "own_s", "found"),
    [
        (30.0, 0.0, 30.0, Neighbours(0.0, 0.0)),
        (35.0, 0.0, 30.0, Neighbours(0.5, 0.0)),
        (30.0, 2.0, 30.0, Neighbours(0.0, 0.1)),
        (29.8, 0.0, 30.0, Neighbours(0.0, 0.0)),  # two clocks, rounded each in its own way
    ],
)
def test_others_are_what_is_busy_and_not_ours(busy_s: float, stolen_s: float, own_s: float, found: Neighbours) -> None:
    before = Ticks(100.0, 7.0, 1.0, 3.0, 2)
    assert between(before, Ticks(110.0, 7.0 + busy_s, 1.0 + stolen_s, 3.0 + own_s, 2)) == found


def test_only_cores_that_we_may_use_are_looked_at(tmp_path: Path) -> None:
    hertz, allowed = os.sysconf("SC_CLK_TCK"), sorted(os.sched_getaffinity(0))
    stat = tmp_path / "stat"
    counts = f"{hertz} {2 * hertz} {3 * hertz} 99 99 {4 * hertz} {5 * hertz} {6 * hertz} 0 0"
    lines = [f"cpu {counts}", f"cpu{allowed[0]} {counts}", f"cpu{allowed[-1] + 1000} {counts}", "intr 1 2 3"]
    stat.write_text("\n".join(lines))
    ticks = read_ticks(stat)
    assert (ticks.busy_s, ticks.stolen_s, ticks.cores) == (15.0, 6.0, 1)


def test_the_kernels_own_count_can_be_read() -> None:
    before = read_ticks()
    sum(range(10**6))
    after = read_ticks()
    assert after.cores >= 1 and after.busy_s >= before.busy_s and after.own_s > before.own_s
