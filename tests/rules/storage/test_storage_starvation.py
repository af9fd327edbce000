"""Whether a job waits for storage, the traffic meanwhile, and the gain from faster reads."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import storage_rule_cases as storage_jobs
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.input.mounts import DataMount
from rn50_advisor.rules.storage.storage_starvation import (
    STARVED,
    blocked_elsewhere,
    group_limit,
    only_memory_is_short,
    others_use_the_disk,
    over_network,
    own_rates,
    place_of,
    saving_of_faster_storage,
    starved,
    step_with_reads,
    traffic,
)
from rule_cases import dat002, job, rank
from rule_runs import found
from rule_table import warm
from storage_rule_cases import DATA, NFS


def each(analysis: Analysis, values: dict[str, float]) -> Analysis:
    """With these values of both ranks."""
    more = {(name, n): value for name, value in values.items() for n in (0, 1)}
    return replace(analysis, values={**analysis.values, **more})


@pytest.mark.parametrize(
    ("rule", "job"), [("DAT002", dat002), ("DSK001", storage_jobs.dsk001), ("DSK002", storage_jobs.dsk002)]
)
@pytest.mark.parametrize(
    ("given", "values", "after_s"),
    [
        # of a second, 0.2 are the step's own; a batch takes one. At worst half of what reads can spare is spared
        pytest.param({"workers": 2, "blocked": 0.9}, {}, (0.2, 0.6), id="workers that hardly compute"),
        pytest.param({"workers": 1, "blocked": 0.55}, {}, (0.45, 0.725), id="one that computes for 450 ms"),
        pytest.param({"workers": 2, "blocked": 0.5}, {}, (0.25, 0.625), id="two of them"),
        pytest.param({"workers": 2, "blocked": 0.55}, {"step.batches": 2.0}, (0.45, 0.725), id="of two batches a step"),
        pytest.param({"blocked": 0.9, "cores": 2.0, "job_cores": 1.2}, {}, (0.6, 0.6), id="the cores"),
        pytest.param({"blocked": 0.9}, {"step.epoch_start_s": 0.1}, (0.3, 0.65), id="workers that start"),
        pytest.param({"workers": 0, "blocked": 0.6}, {}, (0.52, 0.76), id="in the training process"),
    ],
)
def test_faster_storage_computes_no_batch_faster(
    rule: str, job: Any, given: dict[str, Any], values: dict[str, float], after_s: tuple[float, float]
) -> None:
    saving = found(rule, each(job(**{"wait": 0.8, "job_cores": 1.0, **given}), values)).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / after_s[1], warm(1 / after_s[0])))


LIMITS = {name: threshold.value for name, threshold in STARVED.items()}


def known(made: Analysis, **values: float) -> Analysis:
    """With these values of the job."""
    named = {(f"storage.{name}", "job"): value for name, value in values.items()}
    return replace(made, values={**made.values, **named})


@pytest.mark.parametrize(
    ("given", "values", "short"),
    [
        pytest.param({}, {}, True, id="blocked on reads"),
        pytest.param({"wait": 0.01}, {}, False, id="no wait"),
        pytest.param({"blocked": 0.4}, {}, False, id="computing is the larger part"),
        pytest.param({"blocked": 0.4}, {"read_mb_s": 14.0, "limit_mb_s": 14.0}, True, id="less, at a limit"),
        pytest.param({"blocked": 0.2}, {"read_mb_s": 14.0, "limit_mb_s": 14.0}, False, id="too little even there"),
        pytest.param({"read_mb": 0.0}, {}, False, id="nothing is read"),
        pytest.param({"read_mb": 0.0, "network": 1.0}, {}, True, id="reads over a network show no blocks"),
        pytest.param({}, {"device_share": 0.1, "io_wait_share": 0.05, "blocked": 1.0}, False, id="a sleep or a lock"),
        pytest.param({}, {"device_share": 0.1, "io_wait_share": 0.1, "blocked": 1.0}, True, id="the kernel sees waits"),
    ],
)
def test_a_job_is_starved_where_it_waits_and_loaders_are_blocked_on_reads(
    given: dict[str, float], values: dict[str, float], short: bool
) -> None:
    assert starved(known(dat002(**given), **values), LIMITS) is short


def test_over_a_network_a_quiet_disk_proves_nothing() -> None:
    quiet = {"device_share": 0.1, "io_wait_share": 0.05, "blocked": 1.0}
    assert blocked_elsewhere(known(dat002(), **quiet)) and not blocked_elsewhere(known(dat002(network=1.0), **quiet))
    assert not blocked_elsewhere(known(dat002(), device_share=0.1, blocked=1.0)), "the kernel was not asked"


@pytest.mark.parametrize(
    ("mount", "asked_kb", "network"),
    [(NFS, None, True), (NFS, 0.512, True), (NFS, 0.511, False), (DATA, None, False), (None, None, False)],
)
def test_files_in_memory_do_not_come_over_the_network(
    mount: DataMount | None, asked_kb: float | None, network: bool
) -> None:
    made = replace(dat002(), storage=mount)
    assert over_network(made if asked_kb is None else known(made, sample_kb=asked_kb)) is network


def test_the_place_is_the_mount_of_open_files_or_the_data_sets_own() -> None:
    assert place_of(replace(dat002(), storage=DATA)) == DATA.words
    assert place_of(dat002()) == "/data (ext4)"
    assert place_of(job({0: rank()})) == "the data's device"


def test_traffic_is_shown_as_far_as_it_was_measured() -> None:
    assert traffic(dat002()) == ()
    full = known(
        dat002(), read_mb_s=60.0, reads_s=400.0, request_kb=150.0, job_share=0.5, sample_kb=110.0, cache_hit_share=0.25
    )
    assert [(row.metric, row.value) for row in traffic(full)] == [
        ("storage.read_mb_s", 60.0),
        ("storage.sample_kb", 110.0),
        ("storage.cache_hit_share", 0.25),
    ]
    assert traffic(full)[0].note == "from /data (ext4): 400 reads/s of 150 KB, 50 % of it for this job"
    assert "for this job" not in traffic(known(full, job_share=0.9))[0].note


@pytest.mark.parametrize(("keep", "step_s"), [(1.0, 1.0), (0.5, 0.8), (0.0, 0.6)])
def test_less_blocking_shortens_the_wait_by_each_workers_part(keep: float, step_s: float) -> None:
    """A batch a second, 0.8 s of it blocked; two workers share it, and the loop waits 0.4 s."""
    assert step_with_reads(dat002(), keep) == pytest.approx(step_s)


def test_reads_that_take_no_time_leave_what_computing_a_batch_takes() -> None:
    """One worker computes for 0.9 of a second in which the rest of the step takes 0.6: 0.3 s are waited for still."""
    saving = saving_of_faster_storage(dat002(workers=1, blocked=0.1))
    assert saving.seconds_per_step == pytest.approx((0.05, 1.0 - 0.9 * (1 - 0.15 * 0.1)))


def test_rates_are_the_jobs_own_in_a_usual_second() -> None:
    assert own_rates(dat002()) == (None, None)
    assert own_rates(known(dat002(), read_mb_s=40.0, usual_mb_s=50.0, reads_s=300.0, job_share=0.5)) == (25.0, 150.0)


@pytest.mark.parametrize(
    ("values", "limit"),
    [
        ({"read_mb_s": 12.6, "limit_mb_s": 14.0}, (12.6, 14.0, "storage.limit_mb_s")),
        ({"read_mb_s": 12.5, "limit_mb_s": 14.0}, None),
        (
            {"reads_s": 95.0, "limit_reads_s": 100.0, "read_mb_s": 1.0, "limit_mb_s": 14.0},
            (95.0, 100.0, "storage.limit_reads_s"),
        ),
        ({"read_mb_s": 14.0}, None),
        ({"limit_mb_s": 14.0}, None),
    ],
)
def test_a_job_near_its_groups_limit_reads_at_it(
    values: dict[str, float], limit: tuple[float, float, str] | None
) -> None:
    assert group_limit(known(dat002(), **values)) == limit


@pytest.mark.parametrize(
    ("epoch", "host", "group", "short"),
    [(800.0, 16e3, 300.0, True), (800.0, 700.0, 300.0, False), (800.0, 16e3, 900.0, False), (800.0, 16e3, None, False)],
)
def test_memory_alone_is_short_where_the_host_could_hold_an_epoch(
    epoch: float, host: float, group: float | None, short: bool
) -> None:
    rooms = {"epoch_mb": epoch, "host_room_mb": host, "group_room_mb": group}
    assert only_memory_is_short(known(dat002(), **{n: v for n, v in rooms.items() if v is not None})) is short


@pytest.mark.parametrize(("share", "others"), [(0.49, True), (0.5, False), (None, False)])
def test_others_use_the_disk_where_less_than_half_is_the_jobs(share: float | None, others: bool) -> None:
    assert others_use_the_disk(dat002() if share is None else known(dat002(), job_share=share)) is others
