"""Deadlines without drift, and walls around broken probes."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from probe_trees import values
from rn50_advisor.advisor.model.metrics import SAMPLES, ProbeGap, Reading, Sample
from rn50_advisor.advisor.run.own_usage import SHED_ORDER
from rn50_advisor.probes.host.process.process_probe import ProcessTree
from rn50_advisor.probes.host.sampler import Sampler, host_probes
from rn50_advisor.probes.host.target import Target

S = 1_000_000_000


class Clock:
    def __init__(self) -> None:
        self.now_ns = 5 * S

    def __call__(self) -> int:
        return self.now_ns


class Scripted:
    """Reports its tick's time; raises where the script says so."""

    def __init__(self, name: str, failing_ticks: Sequence[int] = ()) -> None:
        self.name = name
        self.calls = 0
        self._failing = failing_ticks

    def sample(self, now_ns: int, targets: Sequence[Target]) -> Reading:
        self.calls += 1
        if self.calls in self._failing:
            raise RuntimeError("no such luck")
        gaps = (ProbeGap("cpu.load1", "host", "once"),) if self.calls == 1 else ()
        return Reading((Sample("cpu.load1", f"{self.name}:{len(targets)}", now_ns / S),), gaps)


def test_deadlines_do_not_drift_and_missed_ones_are_skipped() -> None:
    clock = Clock()
    sampler = Sampler([Scripted("a")], 1.0, clock)
    ticks = []
    for now_s in (5.0, 5.5, 6.3, 6.9, 7.0, 10.25, 10.9, 11.0):
        clock.now_ns = int(now_s * S)
        if (tick := sampler.poll([])) is not None:
            ticks.append(tick.t_ns / S)
    assert ticks == [5.0, 6.3, 7.0, 10.25, 11.0]  # those of 8 and 9 were missed; that of 10 was late
    assert sampler.wait_s() == 1.0
    clock.now_ns = 13 * S
    assert sampler.wait_s() == 0.0


def test_one_tick_carries_the_readings_of_all_probes() -> None:
    sampler = Sampler([Scripted("a"), Scripted("b")], 1.0, Clock())
    tick = sampler.poll([Target(1, "rank", 0)])
    assert tick is not None
    assert [s.scope for s in tick.samples] == ["a:1", "b:1"]
    assert len(tick.gaps) == 2
    assert sampler.sample_now([]).gaps == ()


def test_the_last_tick_reads_all_and_no_other() -> None:
    class Slow(Scripted):
        read_all_for = ()

        def read_all(self) -> None:
            self.read_all_for = (*self.read_all_for, self.calls + 1)

    clock, probe = Clock(), Slow("a")
    sampler = Sampler([probe, Scripted("b")], 1.0, clock)
    for _ in range(3):
        sampler.poll([])
        clock.now_ns += S
    assert sampler.sample_now([]).samples
    assert probe.read_all_for == (4,)


def test_a_probe_that_fails_now_and_then_stays() -> None:
    probe = Scripted("a", failing_ticks=(2, 3, 5))
    sampler = Sampler([probe, Scripted("b")], 1.0, Clock())
    ticks = [sampler.sample_now([]) for _ in range(6)]
    assert [sum(s.scope.startswith("a") for s in t.samples) for t in ticks] == [1, 0, 0, 1, 0, 1]
    assert all(any(s.scope.startswith("b") for s in t.samples) for t in ticks), "the others do not notice"
    assert [[g.metric for g in t.gaps if "failed" in g.reason] for t in ticks] == [[], ["a.*"], [], [], ["a.*"], []]
    assert "RuntimeError: no such luck" in ticks[1].gaps[0].reason


def test_a_probe_that_fails_three_times_in_a_row_is_dropped_with_a_gap() -> None:
    probe = Scripted("a", failing_ticks=range(2, 99))
    sampler = Sampler([probe, Scripted("b")], 1.0, Clock())
    ticks = [sampler.sample_now([]) for _ in range(6)]
    assert probe.calls == 4
    assert [g.metric for g in ticks[3].gaps] == ["a.*"]
    assert "dropped after 3 failures" in ticks[3].gaps[0].reason
    assert sampler.active == ("b",)
    assert ticks[5].gaps == ()


def test_a_shed_probe_runs_no_more_and_is_a_gap_once() -> None:
    sampler = Sampler([Scripted("a"), Scripted("b")], 1.0, Clock())
    sampler.sample_now([])
    assert sampler.drop("a")
    assert not sampler.drop("a")
    tick = sampler.sample_now([])
    assert [s.scope for s in tick.samples] == ["b:0"]
    assert [(g.metric, g.hint) for g in tick.gaps] == [("a.*", "raise --overhead-budget")]
    assert sampler.sample_now([]).gaps == ()


def test_all_probes_on_the_real_machine_report_only_catalogued_samples() -> None:
    tree = ProcessTree(os.getpid())
    sampler = Sampler(host_probes(tree=tree, job_pid=os.getpid()))
    tick = sampler.poll([Target(os.getpid(), "rank", 0)])
    assert tick is not None
    found = values(Reading(tick.samples))
    assert {metric for metric, _ in found} >= {
        "cpu.busy_s",
        "mem.total_bytes",
        "proc.cpu_s",
        "job.cpu_s",
        "job.processes",
    }
    assert not [gap for gap in tick.gaps if "failed" in gap.reason]
    reported = {metric for metric, _ in found} | {gap.metric for gap in tick.gaps}
    silent = {
        "cgroup.quota_cores",
        "cgroup.mem_limit_bytes",
        "cgroup.mem_used_bytes",
        "cgroup.mem_cache_bytes",
        "cgroup.oom_kills",
        "net.speed_mbps",
        "proc.private_bytes",  # of workers, and there are none
        "data.files",  # this process may have none open
        *(metric for metric in SAMPLES if metric.startswith(("mount.", "disk.limit_"))),  # no NFS, no limit
        *("disk.volume_exceeded_s", "disk.instance_exceeded_s", "net.in_exceeded"),  # no provider that counts
    }
    assert {m for m in SAMPLES if not m.startswith("gpu.")} - reported <= silent, "neither a value nor a gap"


def test_all_probes_on_an_empty_machine_report_gaps_and_never_fail(tmp_path: Path) -> None:
    (tmp_path / "proc").mkdir()
    sampler = Sampler(host_probes(tmp_path, tree=ProcessTree(7, tmp_path), job_pid=7))
    ticks = [sampler.sample_now([Target(7, "rank", 0)]) for _ in range(4)]
    assert sampler.active == tuple(probe.name for probe in host_probes())
    assert len(ticks[0].gaps) > 20
    assert all(tick.gaps == () for tick in ticks[1:])


@pytest.mark.parametrize("name", sorted({*SHED_ORDER} - {"stacks", "cpu_cores", "workers"}))
def test_what_is_shed_and_no_switch_of_the_agent_is_a_probe(name: str) -> None:
    assert Sampler(host_probes()).drop(name)


def test_counters_with_rates_per_second_are_read_before_slow_probes() -> None:
    names = Sampler(host_probes()).active
    assert names.index("disk") < names.index("processes") and names.index("network") < names.index("processes")
