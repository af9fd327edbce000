"""What the rules on loaders promise of waits that are not for batches, and how they speak of epochs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import rule_cases as jobs
from rule_cases import loader
from rule_tables import TABLES

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.data_loading.input_starvation import fed_by_waiting, input_waits
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}


def found(rule: str, analysis: Analysis | None = None, **given: Any) -> Finding:
    result = run_rule(RULES[rule], analysis or TABLES[rule].job(**given), Config())
    assert isinstance(result, Finding), result
    return result


@pytest.mark.parametrize("beside", ["step.epoch_start_s", "step.index_s"])
def test_dat003_promises_of_cheaper_samples_no_wait_that_is_for_something_else(beside: str) -> None:
    crowded = jobs.dat003(cores=2.0, job_cores=2.0)
    values = {**crowded.values, **{(beside, f"rank:{number}"): 0.1 for number in (0, 1)}}
    saving = found("DAT003", replace(crowded, values=values)).saving
    assert saving is not None and saving.speedup == pytest.approx((1.0, 1 / 0.7))


ORDERED = {"persistent": False, "length": 10**8, "index": 1.5}


def test_dat014_speaks_of_the_order_where_new_workers_are_not_its_matter() -> None:
    order, stream = found("DAT014", **ORDERED), found("DAT014")
    assert order.title == "Each epoch begins with a wait for the order of its samples"
    assert [(e.metric, round(e.value, 6)) for e in order.evidence] == [
        ("step.epoch_start_s", 0.15),
        ("epoch.index_s", 1.5),
    ]
    assert "the order of samples" in order.evidence[0].note and "2.00 s at each of 3 epochs" in order.evidence[0].note
    assert order.saving is not None and "no order to make" in order.saving.basis
    assert stream.saving is not None and "making a batch" in stream.saving.basis
    assert [e.metric for e in stream.evidence] == ["step.epoch_start_s", "fetch.wall_s"]


@pytest.mark.parametrize(("start", "says"), [(0.2, NotMeasured("DAT014", ("epoch.index_s",))), (0.04, Clear("DAT014"))])
def test_dat014_does_not_guess_what_of_the_begin_is_the_order(start: float, says: Clear | NotMeasured) -> None:
    unseen = jobs.without(TABLES["DAT014"].job(**{**ORDERED, "start": start}), "epoch.index_s")
    assert run_rule(RULES["DAT014"], unseen, Config()) == says


@pytest.mark.parametrize(
    ("given", "basis"),
    [
        ({"steps": 1.0, "wall": 0.0, "first": 0.0}, "one iterator for all steps"),
        ({}, "workers that live on; the first batch of an epoch is still waited for"),
    ],
)
def test_dat006_promises_what_its_first_advice_brings(given: dict[str, Any], basis: str) -> None:
    saving = found("DAT006", **given).saving
    assert saving is not None and saving.basis == basis


@pytest.mark.parametrize(("made", "best_s"), [(0.1, 0.5), (0.7, 0.7), (0.9, 0.9)])
def test_dat008_promises_no_step_that_the_others_could_not_be_fed_in(made: float, best_s: float) -> None:
    saving = found("DAT008", wait=0.9, busy=0.5, made=made, slower=2.0).saving
    assert saving is not None
    assert 1.0 - saving.seconds_per_step[0] == pytest.approx(best_s + 0.25 * (1.0 - best_s), abs=0.01)


def throttled(*, wire_s: float = 0.0, every: float = 0.9, last_waits: float = 0.95) -> Analysis:
    """Reads are rationed; rank 1, which comes last, waits for them, and rank 0 for rank 1."""
    own = {0: jobs.rank(0.05, input_wait=0.01), 1: jobs.rank(last_waits + 0.04, input_wait=last_waits)}
    values = {
        **{name: {0: share, 1: share} for name, share in {"fetch.blocked_share": 0.9, "fetch.cpu_share": 0.1}.items()},
        **{name: {0: 1.0, 1: 1.0} for name in ("fetch.read_mb", "step.batches", "loader.workers")},
        "fetch.wall_s": {0: every, 1: every},
        "comm.exposed_s": {0: 0.95, 1: wire_s},
    }
    return jobs.job(own, wire_s=wire_s, values=values, late={0: 0.0, 1: 1.0}, loaders=(loader(0, 1), loader(1, 1)))


def test_who_is_fed_in_time_only_while_it_waits_for_another_is_short_of_input_too() -> None:
    made = throttled()
    assert input_waits(made) == {0: pytest.approx(0.86), 1: 0.95} and fed_by_waiting(made) == (0,)
    told = found("DAT002", made)
    assert told.severity == "critical" and "rank 0 is short of batches too" in told.evidence[0].note
    assert run_rule(RULES["DAT008"], made, Config()) == Clear("DAT008")


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(throttled(wire_s=0.94), id="it waits for the wire"),
        pytest.param(throttled(every=0.06), id="its batches are made in time"),
        pytest.param(throttled(last_waits=0.02), id="the other is late by something else"),
    ],
)
def test_who_waits_for_anything_else_is_short_of_nothing(made: Analysis) -> None:
    assert input_waits(made)[0] < 0.05 and 0 not in fed_by_waiting(made)
    assert run_rule(RULES["DAT002"], made, Config()) == Clear("DAT002")


SSD = {"mount_point": "/ssd", "fs_type": "xfs", "device": "/dev/nvme0n1", "disk": "nvme0n1", "network": False}
DISK = {"mount_point": "/data", "fs_type": "ext4", "device": "/dev/sdb", "disk": "sdb", "network": False}
NFS = {"mount_point": "/far", "fs_type": "nfs4", "device": "server:/x", "disk": None, "network": True}


@pytest.mark.parametrize(
    ("part", "read_mb", "mounts", "title"),
    [
        (
            "blocked",
            1.0,
            (SSD, DISK),
            "move the data of rank 1 from /data (ext4 on sdb) to /ssd (xfs on nvme0n1), where the",
        ),
        ("blocked", 1.0, (DISK, DISK), "make /data (ext4 on sdb) answer rank 1 as fast as the others"),
        ("blocked", 1.0, (None, None), "let rank 1 read from what answers as fast as the others' data"),
        ("blocked", 0.0, (SSD, NFS), "find what the samples of rank 1 on /far (nfs4 from server:/x) wait for"),
        ("blocked", 0.0, (None, None), "find what the samples of rank 1 wait for"),
        ("cpu", 1.0, (SSD, DISK), "give rank 1 samples that cost no more than the others'"),
        ("delay", 1.0, (SSD, DISK), "give the loading of rank 1 cores of its own"),
        (
            None,
            1.0,
            (SSD, DISK),
            "look at the data of rank 1 on /data (ext4 on sdb): mount, shard, sample sizes, workers",
        ),
    ],
)
def test_dat008_advises_by_what_a_batch_takes_longer_in(
    part: str | None, read_mb: float, mounts: tuple[dict[str, Any] | None, ...], title: str
) -> None:
    values: dict[str, Any] = {"fetch.wall_s": {0: 0.1, 1: 0.5}, "fetch.read_mb": {0: 0.0, 1: read_mb}}
    shares = ("blocked", "cpu", "delay") if part else ()
    values |= {f"fetch.{name}_share": {0: 0.3, 1: 0.8 if name == part else 0.1} for name in shares}
    loaders = (loader(0, 2, mount=mounts[0]), loader(1, 2, line=57, mount=mounts[1]))
    finding = found("DAT008", values=values, loaders=loaders)
    assert finding.fixes[0].title.startswith(title) and "NUMA" not in finding.fixes[0].change
    told = {item.metric: (item.value, item.threshold) for item in finding.evidence}
    assert told["fetch.read_mb"] == (read_mb, 0.0) and told["fetch.wall_s"] == (0.5, 0.1)
    assert told.get("fetch.blocked_share") == ((0.8 if part == "blocked" else 0.1, 0.3) if part else None)


@pytest.mark.parametrize(("cpus", "named"), [(range(8, 16), True), (range(4, 12), False), (range(16), False)])
def test_dat008_names_the_node_whose_cpus_its_rank_has(cpus: range, named: bool) -> None:
    nodes = {"0": list(range(8)), "1": list(range(8, 16))}
    where = replace(jobs.META, environment={"numa_nodes": nodes})
    fix = found("DAT008", meta=where, facts={"1": {"cpus_allowed": list(cpus)}}).fixes[0]
    assert ("its CPUs are those of NUMA node 1" in fix.change) is named
    one = replace(jobs.META, environment={"numa_nodes": {"0": list(range(16))}})
    assert "NUMA" not in found("DAT008", meta=one, facts={"1": {"cpus_allowed": list(cpus)}}).fixes[0].change
