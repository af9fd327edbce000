"""MEM002, host memory creeps: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import host_rule_cases as host_jobs
from ending_rule_cases import death
from explained_rules import would_explain
from host_rule_cases import trend
from rule_cases import LINE
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

SMALL = {**host_jobs.RECORDS, "objects": [{**host_jobs.RECORDS["objects"][0], "bytes": 200_000_000}]}
COPIED = {"role": "worker", "copied": True, "processes": 4, "first": 100.0}


TABLE = Table(
    "MEM002",
    host_jobs.mem002,
    lines={
        "growth": ({"per_minute": 20.0}, {"per_minute": 19.9}),
        "steps": (
            {"seconds": 50.0, "steps": 200.0, "first": 100.0},
            {"seconds": 50.0, "steps": 199.0, "first": 100.0},
        ),
        "steps_seconds": (
            {"seconds": 20.0, "steps": 900.0, "first": 100.0},
            {"seconds": 19.9, "steps": 900.0, "first": 100.0},
        ),
        "seconds": (
            {"seconds": 60.0, "steps": 9.0, "first": 100.0},
            {"seconds": 59.9, "steps": 9.0, "first": 100.0},
        ),
        "copied": ({"copied": 1000.0}, {"copied": 999.0}),
        "lasting": ({"bend": 0.7}, {"bend": 0.701}),
    },
    false_alarms={
        "nothing moves": {"per_minute": 0.0},
        "an allocator that settles": {"bend": 0.9},
        "one jump, after an evaluation": {"bend": 0.0},
        "memory that is given back": {"per_minute": -60.0},
        "private memory of workers without such objects": {"copied": 9000.0, "dataset": {"class": "Pictures"}},
        "objects too small for what the workers hold": {"copied": 9000.0, "dataset": SMALL},
        "copies, where it is unknown what is left": {"copied": 9000.0, "headroom": None},
        "a short run": {"seconds": 15.0, "steps": 5000.0, "first": 10.0},
    },
    severities=(
        ({"headroom": 599.0}, "critical"),
        ({"headroom": 601.0}, "high"),
        ({"headroom": 3601.0}, "medium"),
        ({"headroom": 43201.0}, "low"),
        ({"headroom": None}, "low"),
        ({"copied": 3000.0}, "medium"),
        ({"copied": 2999.0}, "low"),
        ({"deaths": (death(1, oom_killed=True),)}, "critical"),
    ),
    ranks=(1,),
    also_fires={
        "copies of what workers inherited": {"trends": (trend(**COPIED, left_mb=4000.0),)},
        "a short run that the OOM killer ended": {
            "seconds": 15.0,
            "first": 100.0,
            "deaths": (death(1, oom_killed=True),),
        },
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_mem002_names_who_grows_and_how_long_memory_lasts() -> None:
    finding = found("MEM002", TABLE.job(headroom=500.0))  # 60 MB per minute
    assert "rank 1" in finding.title and "8m 20s" in finding.title and finding.urgent
    workers = host_jobs.mem002((host_jobs.trend(role="worker", processes=4),))
    assert "loader workers of rank 1" in found("MEM002", workers).title


def test_mem002_sums_all_that_creeps() -> None:
    both = (host_jobs.trend(rank=0), host_jobs.trend(rank=1))
    finding = found("MEM002", host_jobs.mem002(both, headroom=1100.0))
    assert finding.severity == "critical" and finding.scope.ranks == ()


@pytest.mark.parametrize(("left_mb", "severity"), [(4000.0, "high"), (2000.0, "low")])
def test_mem002_knows_that_workers_copy_no_more_than_they_inherited(left_mb: float, severity: str) -> None:
    copies = host_jobs.trend(role="worker", copied=True, left_mb=left_mb, first=100.0)
    finding = found("MEM002", host_jobs.mem002((copies,)))
    assert finding.severity == severity and "arrays" in finding.fixes[0].title
    assert finding.scope.ranks == () and "the loader workers grows" in finding.title


@pytest.mark.parametrize("role", ["rank", "worker"])
@pytest.mark.parametrize(("left_mb", "severity"), [(3100.0, "high"), (2900.0, "low")])
def test_mem002_knows_that_a_data_set_keeps_no_more_than_one_pass_reads(role, left_mb, severity) -> None:
    finding = found("MEM002", host_jobs.mem002((host_jobs.trend(role=role, left_mb=left_mb),)))
    assert finding.severity == severity and "data set" in finding.fixes[0].title
    assert ("this epoch" in finding.evidence[-1].note) == (severity == "low")


def test_mem002_takes_what_a_worker_holds_anew_for_one_creep() -> None:
    both = tuple(host_jobs.trend(role="worker", copied=copied, left_mb=None) for copied in (False, True))
    assert [e.metric for e in found("MEM002", host_jobs.mem002(both)).evidence] == [
        "memory growth",
        "memory.headroom_mb",
    ]


@pytest.mark.parametrize("wrap", [lambda data: data, lambda data: {"inner": data}, lambda data: {"parts": [data, {}]}])
def test_mem002_names_the_objects_of_which_workers_hold_copies(wrap) -> None:
    finding = found("MEM002", host_jobs.mem002(copied=4000.0, dataset=wrap(host_jobs.RECORDS)))
    assert (
        finding.title == "Copy-on-write memory: 4 loader workers hold 4,000 MB of copied Python objects of the data set"
    )
    assert "1,000 MB in each worker, of records, a list of 900,000 of dict" in finding.evidence[0].note
    arrays, fewer = finding.fixes
    assert "self.records = np.array(records)" in arrays.change and arrays.where == LINE
    assert "num_workers=1" in fewer.change and finding.seconds_per_step == 0.0


def test_mem002_names_the_objects_also_while_copies_grow() -> None:
    job = host_jobs.mem002((trend(**COPIED, left_mb=4000.0),))
    assert "np.array(names)" in found("MEM002", job).fixes[0].change, "none are known"
    named = replace(job, loaders=host_jobs.mem002(copied=4000.0).loaders)
    assert "np.array(records)" in found("MEM002", named).fixes[0].change


@pytest.mark.parametrize(
    ("bytes_each", "headroom", "severity"),
    [(2_000_000_000, 7000.0, "critical"), (1_000_000_000, 7000.0, "low"), (2_000_000_000, 9000.0, "low")],
)
def test_mem002_knows_that_copies_end_with_the_objects(bytes_each: int, headroom: float, severity: str) -> None:
    """Four workers copy 3 GB a minute of what they inherited, but no more than a list each."""
    dataset = {**host_jobs.RECORDS, "objects": [{**host_jobs.RECORDS["objects"][0], "bytes": bytes_each}]}
    copying = (trend(3000.0, **{**COPIED, "first": 10.0}, left_mb=90_000.0, seconds=60.0),)
    made = host_jobs.mem002(copied=1.0, dataset=dataset, headroom=headroom)
    finding = found("MEM002", replace(made, memory=copying))
    assert finding.severity == severity


def test_copies_that_end_in_time_are_reported_by_their_size() -> None:
    dataset = {**host_jobs.RECORDS, "objects": [{**host_jobs.RECORDS["objects"][0], "bytes": 1_100_000_000}]}
    made = host_jobs.mem002(copied=4000.0, dataset=dataset, headroom=6000.0)
    copying = (trend(**COPIED, left_mb=90_000.0),)
    finding = found("MEM002", replace(made, memory=copying))
    assert finding.title.startswith("Copy-on-write memory: 4 loader workers hold 4,000 MB")


def test_mem002_counts_no_more_copies_than_the_objects_can_take() -> None:
    finding = found("MEM002", host_jobs.mem002(copied=50_000.0))
    assert finding.evidence[0].value == 8000.0, "two gigabytes in each of four workers"


def test_mem002_copies_make_memory_short_but_slow_nothing_by_themselves() -> None:
    copies, growth = host_jobs.mem002(copied=4000.0), host_jobs.mem002()
    assert would_explain(copies, found("MEM002", copies)) == {"MEM001"}
    assert "RUN003" in would_explain(growth, found("MEM002", growth))
