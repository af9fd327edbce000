"""CPU005, too many compute threads: its table and its advice."""

from __future__ import annotations

import pytest

import host_rule_cases as host_jobs
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks

TABLE = Table(
    "CPU005",
    host_jobs.cpu005,
    lines={
        "threads": ({"threads": 21, "ranks": 1}, {"threads": 20, "ranks": 1}),
        "waiting": ({"waiting": 4.0, "ranks": 8, "delay": 0.31}, {"waiting": 3.99, "ranks": 8, "delay": 0.31}),
        "helping": ({"waiting": 2.201}, {"waiting": 2.199}),
        "delay": ({"delay": 0.05}, {"delay": 0.0499}),
    },
    false_alarms={
        "threads that sleep, as on a GPU job": {"threads": 64, "waiting": 0.05, "delay": 0.001},
        "training threads wait for workers, not the threads that help them": {"waiting": 2.0, "delay": 0.9},
        "more ranks than cores, each with one thread": {"threads": 1, "ranks": 40},
        "as many threads as cores beside a busy neighbour": {"threads": 8, "waiting": 12.0, "others": 8.0},
    },
    severities=(
        ({"delay": 0.43}, "critical"),
        ({"delay": 0.42}, "high"),
        ({"ranks": 1, "threads": 64, "delay": 0.40}, "high"),  # four tenths of the wait are what is sure
        ({"threads": 64, "waiting": 28.0}, "low"),  # the wait may be the other rank's time to compute
        ({"threads": 64, "waiting": 44.0, "delay": 0.40}, "high"),
    ),
    best=({"ranks": 1, "threads": 64, "delay": 0.2}, warm(1 / (0.5 * 0.8))),
    also_fires={"all delay is the job's own, though the cores are full": {"others": 0.0}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("ranks", "cores", "threads"), [(1, 16.0, 16), (2, 16.0, 8), (3, 16.0, 5), (4, 2.0, 1), (1, 0.5, 1)]
)
def test_cpu005_gives_each_rank_its_share_of_the_cores(ranks: int, cores: float, threads: int) -> None:
    finding = found("CPU005", host_jobs.cpu005(threads=64, ranks=ranks, cores=cores))
    assert f"OMP_NUM_THREADS={threads}," in finding.fixes[0].title


def test_cpu005_promises_less_if_another_rank_may_compute_during_the_wait() -> None:
    """A step of one second in which the training thread waits 0.3 s for a core."""
    spinning, sleeping = found("CPU005", TABLE.job()), found("CPU005", TABLE.job(threads=64, waiting=28.0))
    assert spinning.saving is not None and sleeping.saving is not None
    assert spinning.saving.speedup == pytest.approx((1 / (1 - 0.7 * 0.3), warm(1 / (0.25 * 0.7))))
    assert sleeping.saving.speedup == pytest.approx((1.0, warm(1 / 0.7)))
    # with as many in line as make one rank lose by its own threads, two lose half as much: one computes while the other's team waits
    crowded = found("CPU005", TABLE.job(threads=64, waiting=44.0)).saving
    assert crowded is not None and crowded.speedup == pytest.approx((1 / (1 - 0.4 * 0.3), warm(1 / (0.75 * 0.7))))
