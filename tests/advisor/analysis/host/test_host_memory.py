"""Memory over a run: who grows, how fast, what is left, and what only looks like growth."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from recordings import FIRST_STEP_NS, SECOND, plan, rank_process, recording, series
from rn50_advisor.advisor.analysis.host.host_memory import slope
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.model.analysis import Analysis, MemoryTrend
from rn50_advisor.advisor.model.recording import Process, Series
from rn50_advisor.probes.rank.layout import FLAG_EPOCH_START

MB = 1e6
STEPS = 1000  # a hundred seconds


def curve(value: Callable[[float], float], every: float = 1.0, seconds: int = 100) -> Series:
    """Megabytes over the run."""
    return series(*((n * every, MB * value(n * every)) for n in range(int(seconds / every) + 1)))


def job(
    *workers: Process,
    ranks: int = 1,
    loader: dict[str, Any] | None = None,
    passes: tuple[int, ...] = (),
    **samples: Series,
) -> Analysis:
    """`samples` by metric and pid: held_100, private_200. `passes`: steps with which passes over the data begin."""
    found = {}
    for name, readings in samples.items():
        metric, _, pid = name.rpartition("_")
        found[f"proc.{metric}_bytes", f"pid:{pid}"] = readings
    processes = (*(rank_process(r) for r in range(ranks)), *workers)
    steps = [{**s, "flags": FLAG_EPOCH_START if n in passes else 0} for n, s in enumerate(plan(STEPS))]
    facts = {} if loader is None else {100 + r: {"loaders": [loader]} for r in range(ranks)}
    return analyse(recording(dict.fromkeys(range(ranks), steps), samples=found, processes=processes, facts=facts))


def loader(length: int | None, workers: int = 0) -> dict[str, Any]:
    """Each step takes eight samples of it."""
    data = {"class": "Pictures", "length": length}
    return {"id": 0, "training": True, "file": "", "line": 1, "num_workers": workers, "batch_size": 8, "dataset": data}


def worker(pid: int = 200, **given: Any) -> Process:
    return rank_process(0, pid=pid, role="worker", worker=pid - 200, first_seen_ns=FIRST_STEP_NS, **given)


def test_a_steady_rise_is_reported_with_its_rate() -> None:
    (trend,) = job(held_100=curve(lambda t: 400 + 2 * t)).memory
    assert (trend.rank, trend.role, trend.processes, trend.copied) == (0, "rank", 1, False)
    assert trend.mb_per_s == pytest.approx(2.0)
    assert trend.thirds_mb == pytest.approx((474, 524, 574), abs=3), "medians of the last three quarters' thirds"
    assert trend.seconds == pytest.approx(75, abs=2) and trend.steps == pytest.approx(750, abs=20)
    assert trend.growth == pytest.approx(2 * 75 / 474, rel=0.05)


def test_a_jump_is_no_slope() -> None:
    (trend,) = job(held_100=curve(lambda t: 400 if t < 70 else 700)).memory
    assert trend.mb_per_s == 0.0


def test_outliers_do_not_move_the_slope() -> None:
    assert slope(curve(lambda t: 400 + t + (300 if t % 10 == 0 else 0))) == pytest.approx(MB, rel=0.05)


def test_what_settles_rises_less_in_the_end() -> None:
    (trend,) = job(held_100=curve(lambda t: 400 + 100 * (1 - 0.9**t))).memory
    first, second, third = trend.thirds_mb
    assert third - second < 0.3 * (third - first)


def test_workers_are_summed() -> None:
    analysis = job(worker(200), worker(201), held_200=curve(lambda t: 100 + t), held_201=curve(lambda t: 100 + 2 * t))
    (trend,) = analysis.memory
    assert (trend.role, trend.processes) == ("worker", 2)
    assert trend.mb_per_s == pytest.approx(3.0) and trend.thirds_mb[0] == pytest.approx(200 + 3 * 37, rel=0.05)


def test_the_one_worker_that_was_followed_speaks_for_all_that_copy() -> None:
    analysis = job(
        worker(200),
        worker(201),
        rank_process(1, pid=300, role="worker", worker=0, first_seen_ns=FIRST_STEP_NS),
        ranks=2,
        held_200=curve(lambda t: 500),
        private_200=curve(lambda t: 50 + 3 * t),
        held_201=curve(lambda t: 500),
    )
    held, copied = analysis.memory
    assert held.mb_per_s == 0.0 and not held.copied
    assert copied.copied and copied.processes == 3 and copied.mb_per_s == pytest.approx(9.0)
    assert copied.left_mb == pytest.approx(3 * (500 - 350), rel=0.05), "no more than was inherited"


def test_what_a_worker_takes_is_the_most_it_held_for_itself() -> None:
    values = job(worker(200), worker(201), private_200=curve(lambda t: 50 + 3 * t)).values
    assert values["memory.worker_mb", "job"] == pytest.approx(350)
    assert ("memory.worker_mb", "job") not in job(worker(200), held_200=curve(lambda t: 500)).values


def test_workers_of_earlier_epochs_have_given_their_memory_back() -> None:
    gone = worker(200, ended_ns=FIRST_STEP_NS + 50 * SECOND)
    analysis = job(gone, worker(201), held_200=curve(lambda t: 100 + 9 * t), held_201=curve(lambda t: 100))
    assert [(t.processes, t.mb_per_s) for t in analysis.memory] == [(1, 0.0)]


def test_too_few_readings_are_no_measurement() -> None:
    analysis = job(held_100=curve(lambda t: 400 + t, every=20))
    assert analysis.memory == () and not analysis.has("memory.watched_s")
    assert job(held_100=curve(lambda t: 400.0)).get("memory.watched_s") == pytest.approx(75, abs=2)


@pytest.mark.parametrize(
    ("samples", "left_mb"),
    [
        pytest.param({("mem.available_bytes", "host"): 5000}, 5000, id="the host's"),
        pytest.param(
            {
                ("mem.available_bytes", "host"): 5000,
                ("cgroup.mem_limit_bytes", "pid:100"): 2000,
                ("cgroup.mem_used_bytes", "pid:100"): 1900,
                ("cgroup.mem_cache_bytes", "pid:100"): 700,
            },
            800,
            id="the limit's, with the cache that can be dropped",
        ),
        pytest.param({("cgroup.mem_used_bytes", "pid:100"): 1900}, None, id="no limit, and nothing known of the host"),
    ],
)
def test_what_is_left(samples: dict[tuple[str, str], float], left_mb: float | None) -> None:
    readings = {key: series((5, MB * value), (99, MB * value), (500, 0.0)) for key, value in samples.items()}
    analysis = analyse(recording({0: plan(STEPS)}, samples=readings))
    assert analysis.get("memory.headroom_mb") == left_mb, "as it was when the last step ended"


def test_growth_of_nothing_is_no_division_by_zero() -> None:
    assert MemoryTrend(0, "rank", 1, False, 60.0, 600.0, (0.0, 0.0, 0.0), 0.0).growth == 0.0


@pytest.mark.parametrize(
    ("given", "ranks", "left_mb"),
    [
        pytest.param(loader(12_000), 1, 2.0 * 50, id="half as much again is to come"),
        pytest.param(loader(24_000), 2, 2.0 * 50, id="each rank reads its share"),
        pytest.param(loader(12_000), 2, 2.0 * 50, id="or all of it, if it has gone on beyond its share"),
        pytest.param(loader(7_000), 1, None, id="beyond its length: no pass"),
        pytest.param(loader(None), 1, None, id="a stream"),
        pytest.param(loader(12_000, workers=2), 1, None, id="workers load: the rank keeps something else"),
    ],
)
def test_what_grows_in_the_first_pass_over_the_data_ends_with_it(
    given: dict[str, Any], ranks: int, left_mb: float | None
) -> None:
    trend = job(held_100=curve(lambda t: 400 + 2 * t), loader=given, passes=(0,), ranks=ranks).memory[0]
    assert trend.mb_per_s == pytest.approx(2.0)
    assert trend.left_mb == (None if left_mb is None else pytest.approx(left_mb, rel=0.02))


def test_workers_keep_what_they_read_in_their_first_pass() -> None:
    given = loader(12_000, workers=1)
    (trend,) = job(worker(), held_200=curve(lambda t: 100 + 2 * t), loader=given, passes=(0,)).memory
    assert trend.role == "worker" and trend.left_mb == pytest.approx(100, rel=0.02)


def test_after_the_first_pass_only_the_others_count() -> None:
    given = loader(5_600)
    filled = {"loader": given, "passes": (0, 700)}
    (cache,) = job(held_100=curve(lambda t: 400 + 2 * min(t, 70)), **filled).memory
    assert cache.mb_per_s == pytest.approx(0.0, abs=0.01) and cache.seconds == pytest.approx(30, abs=2)
    (leak,) = job(held_100=curve(lambda t: 400 + 2 * t), **filled).memory
    assert leak.mb_per_s == pytest.approx(2.0) and leak.left_mb is None
    assert job(held_100=curve(lambda t: 400 + 2 * t), loader=given, passes=(0, 970)).memory == (), "nobody knows yet"


def test_what_workers_copied_is_their_private_memory_that_they_did_not_allocate() -> None:
    grown = {"held_200": curve(lambda t: 500 + min(t, 40)), "private_200": curve(lambda t: 30 + 8 * min(t, 50))}
    values = job(worker(200), worker(201), held_201=curve(lambda t: 500), **grown).values
    assert values["memory.copied_mb", "job"] == pytest.approx(2 * (430 - 40 - 25))


def test_workers_that_were_not_followed_copied_an_unknown_amount() -> None:
    assert ("memory.copied_mb", "job") not in job(worker(200), held_200=curve(lambda t: 500)).values
    assert ("memory.copied_mb", "job") not in job(worker(200), private_200=curve(lambda t: 500)).values
