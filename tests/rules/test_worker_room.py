"""The number of workers advised fits cores, memory and /dev/shm, and the finding names what binds."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import input_rule_cases as input_jobs
import pytest
import rule_cases as jobs

from rn50_advisor.advisor.model.analysis import JOB, Analysis
from rn50_advisor.advisor.model.findings import Finding, Fix
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules import analysis_reading
from rn50_advisor.rules.registry import all_rules

GIB = 1073.741824  # in MB
PICTURES = 38_535_168  # bytes: 64 x 3 x 224 x 224 floats


def short_of(
    analysis: Analysis, *, batch: int | None = PICTURES, prefetch: int | None = None, **values: float
) -> Analysis:
    loaders = tuple(replace(known, batch_bytes=batch, prefetch_factor=prefetch) for known in analysis.loaders)
    named = {(name.replace("__", "."), JOB): value for name, value in values.items()}
    return replace(analysis, loaders=loaders, values={**analysis.values, **named})


RULES = {rule.id: rule for rule in all_rules()}


def fix_of(rule: str, analysis: Analysis) -> Fix:
    outcome = run_rule(RULES[rule], analysis, Config())
    assert isinstance(outcome, Finding), outcome
    return outcome.fixes[0]


IN_PROCESS: dict[str, Any] = {"wait": 0.9, "wall": 0.9, "job_cores": 1.0}


@pytest.mark.parametrize(
    ("total_mb", "used", "batch", "room"),
    [
        (8 * GIB, 0.0, PICTURES, 49),  # 0.9 * 8590 / 2 less one batch, over two batches of 38.5 MB
        (1 * GIB, 0.0, PICTURES, 5),
        (1 * GIB, 0.5, PICTURES, 2),
        (64.0, 0.0, PICTURES, 0),  # what containers have
        (64.0, 0.0, 100_000, 143),
    ],
)
def test_so_many_workers_fit_into_shared_memory(total_mb: float, used: float, batch: int, room: int) -> None:
    a = short_of(jobs.dat003(**IN_PROCESS), batch=batch, shm__total_mb=total_mb, shm__used_share=used)
    assert analysis_reading.room_beside_cores(a) == (("/dev/shm", room),)


def test_batches_on_their_way_do_not_take_room_from_themselves() -> None:
    a = short_of(jobs.dat004(workers=2), shm__total_mb=1000.0, shm__used_share=0.309)  # 2 ranks x 2 workers x 2 batches
    empty = short_of(jobs.dat003(**IN_PROCESS), shm__total_mb=1000.0, shm__used_share=0.0)
    assert analysis_reading.room_beside_cores(a) == analysis_reading.room_beside_cores(empty)


@pytest.mark.parametrize(
    ("worker_mb", "left_mb", "room"),
    [(500.0, 10_000.0, 2 + 6), (500.0, 1000.0, 2), (2000.0, 100_000.0, 2 + 19), (500.0, 0.0, 2)],
)
def test_so_many_workers_fit_into_memory(worker_mb: float, left_mb: float, room: int) -> None:
    a = short_of(jobs.dat004(workers=2), memory__worker_mb=worker_mb, memory__headroom_mb=left_mb)
    assert analysis_reading.room_beside_cores(a) == (("the memory", room),)


@pytest.mark.parametrize(
    "values",
    [
        {},
        {"memory__worker_mb": 500.0},
        {"shm__total_mb": 64.0},
        {"shm__total_mb": 0.0, "shm__used_share": 0.0},
    ],
)
def test_what_was_not_measured_limits_nothing(values: dict[str, float]) -> None:
    assert analysis_reading.room_beside_cores(short_of(jobs.dat004(), batch=None, **values)) == ()
    assert analysis_reading.room_beside_cores(short_of(jobs.dat004(), **values)) == ()


@pytest.mark.parametrize(
    ("job", "left_mb", "room"),
    [
        (jobs.dat003(**IN_PROCESS), 1000.0, 1),  # 0.8 * 1000 / 2 over 140 and two batches of 38.5 MB
        (jobs.dat003(**IN_PROCESS), 200.0, 0),
        (jobs.dat004(workers=2), 1000.0, 2 + 1),
    ],
)
def test_where_no_worker_was_seen_memory_is_shared_out_by_what_others_took(
    job: Analysis, left_mb: float, room: int
) -> None:
    assert analysis_reading.room_beside_cores(short_of(job, memory__headroom_mb=left_mb)) == (
        ("the memory (140 MB each)", room),
    )


def test_the_cap_is_the_least_of_all() -> None:
    whole = jobs.dat004(workers=2)
    assert analysis_reading.worker_cap(whole) == 7
    assert analysis_reading.worker_cap(short_of(whole, memory__worker_mb=500.0, memory__headroom_mb=1000.0)) == 2
    assert analysis_reading.worker_cap(short_of(whole, shm__total_mb=GIB, shm__used_share=0.0)) == 5
    unknown = replace(whole, values={k: v for k, v in whole.values.items() if k[0] != "cpu.allowed_cores"})
    assert analysis_reading.worker_cap(unknown) is None
    assert analysis_reading.worker_cap(short_of(unknown, shm__total_mb=GIB, shm__used_share=0.0)) == 5


def test_dat003_obeys_shared_memory_and_says_so() -> None:
    fix = fix_of("DAT003", short_of(jobs.dat003(**IN_PROCESS), shm__total_mb=GIB, shm__used_share=0.0))
    assert fix.title.startswith("num_workers=0 → 5,")
    assert "room for 5 (8 would fit the cores, 5 /dev/shm)" in fix.change


def test_dat003_asks_for_room_where_not_one_worker_fits() -> None:
    fix = fix_of("DAT003", short_of(jobs.dat003(**IN_PROCESS), shm__total_mb=64.0, shm__used_share=0.0))
    assert fix.effort == "outside the code" and "/dev/shm" in fix.title and "--shm-size" in fix.change
    assert not fix.change.startswith("DataLoader(")  # which would be made an edit of


def test_dat003_obeys_memory_though_it_saw_no_worker() -> None:
    fix = fix_of("DAT003", short_of(jobs.dat003(**IN_PROCESS), memory__headroom_mb=1000.0))
    assert fix.title.startswith("num_workers=0 → 1,")
    assert "room for 1 (8 would fit the cores, 1 the memory (140 MB each))" in fix.change
    full = fix_of("DAT003", short_of(jobs.dat003(**IN_PROCESS), memory__headroom_mb=200.0))
    assert full.title == "make room for loader workers: the memory (140 MB each) holds no more"


@pytest.mark.parametrize(
    ("values", "titles"),
    [
        pytest.param({}, ["prefetch_factor=2 → 4"], id="nothing is known to be short"),
        pytest.param({"shm__total_mb": 1000.0, "shm__used_share": 0.3}, ["prefetch_factor=2 → 4"], id="room for both"),
        pytest.param({"shm__total_mb": 700.0, "shm__used_share": 0.4}, ["prefetch_factor=2 → 3"], id="for one more"),
        pytest.param({"shm__total_mb": 400.0, "shm__used_share": 0.7}, [], id="for none"),
        pytest.param(
            {"memory__worker_mb": 100.0, "memory__headroom_mb": 800.0}, ["prefetch_factor=2 → 4"], id="memory"
        ),
        pytest.param({"memory__worker_mb": 100.0, "memory__headroom_mb": 300.0}, ["prefetch_factor=2 → 3"], id="some"),
        pytest.param({"memory__worker_mb": 100.0, "memory__headroom_mb": 100.0}, [], id="no memory"),
    ],
)
def test_dat009_prefetches_no_deeper_than_there_is_room(values: dict[str, float], titles: list[str]) -> None:
    """Of four workers on two ranks each batch more on its way takes 77 MB a rank."""
    for torch, first in (("2.6.1", []), ("2.15.0", ["in_order=False"])):
        outcome = run_rule(RULES["DAT009"], short_of(input_jobs.dat009(torch=torch), **values), Config())
        assert isinstance(outcome, Finding)
        *said, last = [fix.title for fix in outcome.fixes]
        assert said == [*first, *titles] and last.startswith("make samples cost the same")


def test_dat004_obeys_memory_and_says_so() -> None:
    a = short_of(jobs.dat004(workers=2), memory__worker_mb=400.0, memory__headroom_mb=1200.0)
    fix = fix_of("DAT004", a)
    assert fix.title == "num_workers=2 → 3, persistent_workers=True"
    assert fix.change.endswith("8 would fit the cores, 3 the memory")


def test_dat004_asks_for_room_where_no_worker_more_fits() -> None:
    a = short_of(jobs.dat004(workers=2), memory__worker_mb=500.0, memory__headroom_mb=900.0)
    fix = fix_of("DAT004", a)
    assert "the memory holds no more" in fix.title and "then num_workers=3" in fix.change
