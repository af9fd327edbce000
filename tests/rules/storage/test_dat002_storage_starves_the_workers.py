"""DAT002, storage starves the loader: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rule_cases as jobs
import storage_rule_cases as storage_jobs
from input_rule_cases import throttled
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, Finding
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.data_loading.input_starvation import input_waits, ranks_with_hidden_wait
from rule_cases import LINE, WAIT, dat002
from rule_runs import RULES, best_step_s, found, warm_step_s
from rule_table import Table, waits, warm
from storage_rule_cases import notes
from table_checks import Check, checks

TABLE = Table(
    "DAT002",
    jobs.dat002,
    lines={
        **WAIT,
        "blocked": ({"blocked": 0.5}, {"blocked": 0.499}),
        "bytes_per_sample": ({"read_mb": 0.004096}, {"read_mb": 0.004095}),
    },
    false_alarms={
        "a sleep or a lock in the dataset reads nothing": {"read_mb": 0.0},
        "the page cache serves the data": {"read_mb": 0.0001},
        "computing, not blocked": {"blocked": 0.2},
    },
    severities=waits("wait"),
    where=LINE,
    best=({"wait": 0.4}, warm(1 / 0.6)),
    also_fires={"a network mount shows no blocks": {"read_mb": 0.0, "network": 1.0}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    "made",
    [
        pytest.param(throttled(wire_s=0.94), id="it waits for the wire"),
        pytest.param(throttled(every=0.06), id="its batches are made in time"),
        pytest.param(throttled(last_waits=0.02), id="the other is late by something else"),
    ],
)
def test_a_rank_that_waits_for_something_else_is_not_short_of_input(made: Analysis) -> None:
    assert input_waits(made)[0] < 0.05 and 0 not in ranks_with_hidden_wait(made)
    assert run_rule(RULES["DAT002"], made, Config()) == Clear("DAT002")


def plus(analysis: Analysis, **values: float) -> Analysis:
    return replace(analysis, values={**analysis.values, **{(f"storage.{k}", "job"): v for k, v in values.items()}})


def test_the_evidence_of_slow_storage_names_mount_rate_reads_files_and_cache() -> None:
    raid = DataMount("/data", "xfs", "/dev/md0", False, "md0", ("nvme1n1", "nvme2n1"))
    analysis = plus(
        dat002(storage=raid),
        read_mb_s=80.0, reads_s=640.0, request_kb=125.0, sample_kb=110.0, cache_hit_share=0.25, job_share=0.4,
    )  # fmt: skip
    finding = found("DAT002", analysis)
    assert finding.title == "Data loading: storage-bound on /data (xfs on md0 over nvme1n1, nvme2n1)"
    by_metric = notes(finding)
    assert "640 reads/s of 125 KB, 40 % of it for this job" in by_metric["storage.read_mb_s"]
    assert {"storage.sample_kb", "storage.cache_hit_share"} <= by_metric.keys()
    assert "fetch.read_mb_per_s" not in by_metric


@pytest.mark.parametrize(
    ("seen", "fires"),
    [
        ({"device_share": 0.05, "io_wait_share": 0.05, "blocked": 2.0}, False),
        ({"device_share": 0.05, "io_wait_share": 0.30, "blocked": 2.0}, True),  # a limit before the disk
        ({"device_share": 0.05, "io_wait_share": 0.05, "blocked": 0.4}, True),
        ({"device_share": 0.50, "io_wait_share": 0.05, "blocked": 2.0}, True),
        ({"device_share": 0.05, "blocked": 2.0}, True),  # a kernel without PSI
    ],
)
def test_loaders_that_sleep_between_small_reads_do_not_wait_for_storage(seen: dict[str, float], fires: bool) -> None:
    outcome = run_rule(RULES["DAT002"], plus(dat002(storage=storage_jobs.DATA), **seen), Config())
    assert isinstance(outcome, Finding) is fires


def test_a_network_mount_shows_neither_disk_nor_waiting_and_is_storage_all_the_same() -> None:
    seen = {"device_share": 0.05, "io_wait_share": 0.05, "blocked": 2.0}
    assert isinstance(run_rule(RULES["DAT002"], plus(dat002(storage=storage_jobs.NFS), **seen), Config()), Finding)


@pytest.mark.parametrize(("asked_kb", "fires"), [(110.0, True), (0.6, True), (0.1, False)])
def test_a_loader_that_reads_nothing_does_not_wait_for_the_network(asked_kb: float, fires: bool) -> None:
    """No block is read from a disk; one file on a network mount was seen open."""
    analysis = plus(dat002(read_mb=0.0, storage=storage_jobs.NFS), sample_kb=asked_kb)
    assert isinstance(run_rule(RULES["DAT002"], analysis, Config()), Finding) is fires


@pytest.mark.parametrize(("handed", "fires"), [(0.0, True), (0.04, True), (0.06, False)])
def test_waiting_for_a_batch_that_is_made_is_not_waiting_for_storage(handed: float, fires: bool) -> None:
    """A wait of 0.1 s per step, in two batches."""
    made = dat002(wait=0.1, storage=storage_jobs.DATA)
    more = {("fetch.hand_over_s", n): handed / 2 for n in (0, 1)}
    more |= {("step.batches", n): 2.0 for n in (0, 1)}
    outcome = run_rule(RULES["DAT002"], replace(made, values={**made.values, **more}), Config())
    assert isinstance(outcome, Finding) is fires


def test_dat002_names_mount_and_rate_of_all_loaders_together() -> None:
    finding = found("DAT002", TABLE.job(read_mb=2.0, workers=3))
    assert "/data (ext4)" in finding.title
    assert {e.metric: e.value for e in finding.evidence}["fetch.read_mb_per_s"] == 12.0  # 2 MB/s, 2 ranks, 3 workers


def test_dat002_leaves_the_cpu_work_of_loading_in_the_training_process() -> None:
    finding = found("DAT002", TABLE.job(wait=0.4, blocked=0.6, workers=0))
    assert best_step_s(finding) == pytest.approx(
        warm_step_s(0.6 + 0.4 * 0.4)
    )  # what a batch computes stays where it is
