"""The node during the steps: counters with resets, cores, quota, steal, and the strips of the screen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from nodes import two_nodes
from recordings import FIRST_STEP_NS, SECOND, plan, rank_process, recording, series, steady_counter
from rn50_advisor.advisor.analysis.host.node_window import Window
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.merge.merging import merge
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.recording import Recording, Series
from rn50_advisor.advisor.model.statistics import increase

Samples = dict[tuple[str, str], Series]
# the steady steps last from 0.3 s to 9 s
LONG = {0: plan(90)}


def job(samples: Samples, **more: Any) -> Analysis:
    return analyse(recording(LONG, samples=samples, **more))


@pytest.mark.parametrize(
    ("readings", "expected"),
    [
        pytest.param([(0, 10), (1, 12), (2, 16)], (6.0, 2.0), id="grows"),
        pytest.param([(0, 10), (1, 12), (2, 1), (3, 4)], (5.0, 3.0), id="a fall is a reset and loses nothing else"),
        pytest.param([(0, 10), (1, 10)], (0.0, 1.0), id="stands still"),
        pytest.param([(0, 10)], None, id="one reading shows nothing"),
        pytest.param([], None, id="none neither"),
        pytest.param([(-9, 0), (-1, 8), (5, 20), (11, 24), (30, 500)], (16.0, 12.0), id="between readings around it"),
        pytest.param([(-9, 0), (0, 8), (10, 24), (30, 500)], (16.0, 10.0), id="a reading on the edge is enough"),
    ],
)
def test_growth_of_a_counter(readings: list[tuple[float, float]], expected: tuple[float, float] | None) -> None:
    readings_of = series(*readings)
    assert increase(readings_of.t_ns, readings_of.value, FIRST_STEP_NS, FIRST_STEP_NS + 10 * SECOND) == expected


def test_helpers_are_neither_ranks_nor_workers_and_compute() -> None:
    roles = {200: "worker", 300: "other", 301: "other", 302: "other"}
    others = [rank_process(0, pid=pid, role=role, command=f"p{pid % 2}") for pid, role in roles.items()]
    counters = {f"pid:{pid}": steady_counter(0.5) for pid in (100, 200, 300, 302)}
    counters["pid:301"] = steady_counter(0.04)  # a launcher
    samples = {("proc.cpu_s", scope): counter for scope, counter in counters.items()}
    analysis = job(samples, processes=(rank_process(0), *others))
    assert analysis.get("cpu.helper_cores") == pytest.approx(1.0)
    assert set(analysis.helpers) == {"p0"}
    assert job(samples).get("cpu.helper_cores") is None and not job(samples).helpers


def test_helpers_on_another_host_take_none_of_the_cores_of_the_one_that_is_shown() -> None:
    """Their processes are sampled there, and stand beside those of this one in a merged recording."""

    def own(node: Recording, busy: float) -> Recording:
        helper = replace(rank_process(0), pid=300, role="other", rank=None, command="cacher")
        counter = steady_counter(busy)
        times = counter.t_ns - FIRST_STEP_NS + int(min(int(rows["t_start_ns"][0]) for rows in node.steps.values()))
        samples = {("proc.cpu_s", "pid:300"): replace(counter, t_ns=times)}
        return replace(node, processes=(*node.processes, helper), samples=samples)

    merged = merge(
        [own(node, busy) for node, busy in zip(two_nodes({0: LONG[0], 1: LONG[0]}), (0.5, 3.0), strict=True)]
    )
    shown = merged.shown_node
    assert shown is not None
    expected = (0.5, 3.0)[shown.number]
    assert analyse(merged).get("cpu.helper_cores") == pytest.approx(expected, rel=0.02)
    assert analyse(merged).helpers == {"cacher": pytest.approx(expected, rel=0.02)}


def test_levels_outside_the_window_stand_in_for_those_inside() -> None:
    late = recording(LONG, samples={("cpu.cores", "host"): series((100, 8), (200, 4))})
    window = Window(late, FIRST_STEP_NS, FIRST_STEP_NS + SECOND)
    assert window.level("cpu.cores", "host") == 4.0
    assert window.level("cpu.cores", "cpu:0") is None
    inside = recording(LONG, samples={("cpu.cores", "host"): series((-1, 99), (0, 2), (1, 4), (5, 99))})
    assert Window(inside, FIRST_STEP_NS, FIRST_STEP_NS + SECOND).level("cpu.cores", "host") == 3.0


CORES: Samples = {
    ("cpu.allowed_cores", "job"): series((0, 4)),
    ("cpu.cores", "host"): series((0, 8)),
    ("job.cpu_s", "job"): steady_counter(2.0),
    ("cpu.busy_s", "host"): steady_counter(5.0),
    ("cpu.idle_s", "host"): steady_counter(2.0),
    ("cpu.iowait_s", "host"): steady_counter(0.0),
    ("cpu.steal_s", "host"): steady_counter(1.0),
}


def test_cores_are_what_counters_grew_by_while_training() -> None:
    analysis = job(CORES)
    wanted = {"allowed_cores": 4, "host_cores": 8, "job_cores": 2, "host_busy_cores": 5, "other_cores": 3}
    assert {name: analysis.get(f"cpu.{name}") for name in wanted} == pytest.approx(wanted)
    assert analysis.get("cpu.steal_share") == pytest.approx(1 / 8)
    assert analysis.model is not None
    assert analysis.model.job_cpu_s == pytest.approx(0.2) and analysis.model.allowed_cores == 4.0


@pytest.mark.parametrize(
    ("allowed", "cores"),
    [
        ({100: [0, 1], 101: [2, 3]}, 4.0),  # each rank bound to its own
        ({100: [0, 1], 101: [0, 1]}, 2.0),
        ({100: [0, 1], 101: None}, None),  # one of them did not report any
        ({}, None),
    ],
)
def test_the_cores_that_ranks_are_bound_to(allowed: dict[int, list[int] | None], cores: float | None) -> None:
    facts = {pid: {"cpus_allowed": cpus} for pid, cpus in allowed.items()}
    made = recording({0: plan(90), 1: plan(90)}, samples=CORES, facts=facts)
    assert analyse(made).get("cpu.affinity_cores") == cores


@pytest.mark.parametrize(
    ("gone", "missing"),
    [
        ("cpu.steal_s", {"cpu.steal_share"}),
        ("job.cpu_s", {"cpu.job_cores", "cpu.other_cores"}),
        ("cpu.busy_s", {"cpu.host_busy_cores", "cpu.other_cores"}),
        ("cpu.allowed_cores", {"cpu.allowed_cores"}),
    ],
)
def test_what_was_not_sampled_is_absent(gone: str, missing: set[str]) -> None:
    analysis = job({key: value for key, value in CORES.items() if key[0] != gone})
    derived = ("allowed_cores", "host_cores", "job_cores", "host_busy_cores", "other_cores", "steal_share")
    assert {f"cpu.{name}" for name in derived if analysis.get(f"cpu.{name}") is None} == missing


def test_a_job_that_outdoes_the_hosts_counter_has_no_negative_neighbours() -> None:
    assert job({**CORES, ("cpu.busy_s", "host"): steady_counter(1.9)}).get("cpu.other_cores") == 0.0


def quota(held_per_s: float, periods: float = 10, throttled: float = 6, pid: int = 100) -> Samples:
    scope = f"pid:{pid}"
    return {
        ("cgroup.quota_cores", scope): series((0, 0.5)),
        ("cgroup.throttled_s", scope): steady_counter(held_per_s),
        ("cgroup.periods", scope): steady_counter(periods),
        ("cgroup.throttled_periods", scope): steady_counter(throttled),
    }


def test_the_quota_is_reported_for_each_rank_under_one() -> None:
    run = recording({0: plan(90), 1: plan(90)}, samples=quota(0.4, pid=101))
    analysis = analyse(run)
    assert analysis.by_rank("quota.cores") == {1: 0.5}
    assert analysis.by_rank("quota.throttled_share") == pytest.approx({1: 0.6})
    assert analysis.by_rank("quota.throttled_s_per_s") == pytest.approx({1: 0.4})


def test_no_quota_is_no_value_and_no_enforced_period_no_share() -> None:
    assert not job({}).has("quota.cores")
    idle = job(quota(0.0, periods=0, throttled=0))
    assert idle.has("quota.cores") and not idle.has("quota.throttled_share")


def test_the_last_process_of_a_rank_counts() -> None:
    first, second = rank_process(0), rank_process(0, pid=900, first_seen_ns=FIRST_STEP_NS)
    samples = {**quota(0.1), **quota(0.4, pid=900)}
    analysis = job(samples, processes=(second, first))
    assert analysis.by_rank("quota.throttled_s_per_s") == pytest.approx({0: 0.4})
    assert [strip.pid for strip in analysis.ranks] == [900]


def test_the_host_strip_shows_the_last_seconds() -> None:
    memory = {
        ("mem.total_bytes", "host"): series((0, 100), (9, 100)),
        ("mem.available_bytes", "host"): series((0, 90), (9, 30)),
        ("disk.read_bytes", "disk:a"): steady_counter(2e6),
        ("disk.read_bytes", "disk:b"): steady_counter(1e6),
        ("disk.busy_s", "disk:a"): steady_counter(0.3),
        ("disk.busy_s", "disk:b"): steady_counter(0.9),
        ("net.tx_bytes", "net:eth0"): steady_counter(4e6),
    }
    host = job({**CORES, **memory, **quota(0.25)}).host
    assert host is not None
    assert (host.busy_cores, host.job_cores, host.steal_pct) == pytest.approx((5.0, 2.0, 12.5))
    assert (host.mem_used_bytes, host.disk_read_mb_s, host.disk_busy_pct) == pytest.approx((70.0, 3.0, 90.0))
    assert (host.net_mb_s, host.throttled_pct) == pytest.approx((4.0, 25.0))
    assert host.shm_used_bytes is None, "not measured"


def test_without_a_sample_there_is_no_host_strip() -> None:
    assert job({}).host is None


def test_gpus_are_those_named_and_those_sampled() -> None:
    samples = {("gpu.power_w", "gpu:1"): series((8, 200), (9, 220)), ("gpu.temp_c", "gpu:10"): series((8, 60))}
    gpus = job(samples, meta={"environment": {"gpus": [{"index": 0, "name": "A100"}]}}).gpus
    assert [(g.index, g.name, g.power_w, g.temp_c) for g in gpus] == [
        (0, "A100", None, None),
        (1, "", 210.0, None),
        (10, "", None, 60.0),
    ]


def test_shared_memory_was_as_full_as_it_ever_was() -> None:
    sizes = {
        ("mem.shm_used_bytes", "host"): series((1, 8e6), (2, 60e6), (3, 10e6)),
        ("mem.shm_total_bytes", "host"): series((1, 64e6), (2, 64e6), (3, 64e6)),
    }
    analysis = job(sizes)
    assert analysis.get("shm.used_share") == pytest.approx(60 / 64)
    assert analysis.get("shm.total_mb") == pytest.approx(64.0)
    assert job({}).get("shm.used_share") is None, "not measured"


def test_samples_of_nothing_are_no_zero() -> None:
    empty = Series(np.array([], np.int64), np.array([], np.float64))
    analysis = job({("job.cpu_s", "job"): empty, ("cpu.allowed_cores", "job"): empty})
    assert analysis.get("cpu.job_cores") is None and analysis.get("cpu.allowed_cores") is None
