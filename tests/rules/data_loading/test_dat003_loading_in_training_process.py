"""DAT003, loading happens in the training process: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rule_cases as jobs
from input_rule_cases import GIB, IN_PROCESS, fix_of, short_of
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.input.sample_cost import SampleCost, SampleLine
from rn50_advisor.rules import analysis_reading
from rule_cases import LINE, WAIT, loader, rank
from rule_runs import found
from rule_table import Table, waits, warm
from table_checks import Check, checks

TABLE = Table(
    "DAT003",
    jobs.dat003,
    lines={**WAIT, "hand_over": ({"wall": 0.002}, {"wall": 0.0019})},
    false_alarms={
        "tiny data in memory": {"wait": 0.03, "wall": 0.03},
        "a garbage collection that may have come in a fetch": {"wait": 0.06, "gc": 0.02},
        "batches made faster than any worker hands them over": {"wait": 0.4, "wall": 0.0005},
        "workers load": {"workers": 2},
    },
    severities=waits("wait"),
    where=LINE,
    best=({"cores": 4.0, "job_cores": 3.6}, 1 / 0.9),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize("beside", ["step.epoch_start_s", "step.index_s"])
def test_dat003_regains_no_wait_that_is_not_for_samples(beside: str) -> None:
    crowded = jobs.dat003(cores=2.0, job_cores=2.0)
    values = {**crowded.values, **{(beside, number): 0.1 for number in (0, 1)}}
    saving = found("DAT003", replace(crowded, values=values)).saving
    assert saving is not None and saving.speedup == pytest.approx((1.0, 1 / 0.7))


def test_dat003_respects_shared_memory_and_reports_it() -> None:
    fix = fix_of("DAT003", short_of(jobs.dat003(**IN_PROCESS), shm__total_mb=GIB, shm__used_share=0.0))
    assert fix.title.startswith("num_workers=0 → 5,")
    assert "room for 5 (8 would fit the cores, 5 /dev/shm)" in fix.change


def test_dat003_asks_for_free_space_if_not_one_worker_fits() -> None:
    fix = fix_of("DAT003", short_of(jobs.dat003(**IN_PROCESS), shm__total_mb=64.0, shm__used_share=0.0))
    assert fix.effort == "outside the code" and "/dev/shm" in fix.title and "--shm-size" in fix.change
    assert fix.call is None  # which would be made an edit of


def test_dat003_respects_memory_without_a_measured_worker() -> None:
    fix = fix_of("DAT003", short_of(jobs.dat003(**IN_PROCESS), memory__headroom_mb=1000.0))
    assert fix.title.startswith("num_workers=0 → 1,")
    assert "room for 1 (8 would fit the cores, 1 the memory (140 MB each))" in fix.change
    full = fix_of("DAT003", short_of(jobs.dat003(**IN_PROCESS), memory__headroom_mb=200.0))
    assert full.title == "make room for loader workers: the memory (140 MB each) holds no more"


# wait, seconds to make one batch, cores of the job, workers advised
@pytest.mark.parametrize(
    ("wait", "wall", "cores", "workers"),
    [
        (0.4, 0.4, 16.0, 1),  # beside a step of 0.6 s
        (0.8, 0.8, 16.0, 4),  # beside 0.2 s, and both a tenth slower beside each other
        (0.9, 0.9, 16.0, 8),  # nine would be worth it, but 16 cores carry eight a rank
        (0.9, 0.9, 2.0, 1),  # no room at all: one worker at least
        (0.05, 0.05, 16.0, 1),
        (0.4, 0.4, None, 1),  # cores unknown: nothing is shared
    ],
)
def test_dat003_advises_the_knee_of_the_forecast(wait: float, wall: float, cores: float | None, workers: int) -> None:
    fix = found("DAT003", TABLE.job(wait=wait, wall=wall, cores=cores, job_cores=1.0)).fixes[0]
    assert fix.title.startswith(f"num_workers=0 → {workers},")
    assert f"num_workers={workers}, persistent_workers=True" in fix.change


def test_dat003_says_if_too_few_workers_fit_the_cores() -> None:
    short = found("DAT003", TABLE.job(wait=0.9, wall=0.9, job_cores=1.0)).fixes[0].change
    assert "9 workers would be needed, this machine has room for 8" in short
    assert "would be needed" not in found("DAT003", TABLE.job(wait=0.4)).fixes[0].change


def test_workers_that_sleep_through_their_batches_may_outnumber_the_cores() -> None:
    asleep = {"fetch.cpu_share": {0: 0.05, 1: 0.05}, "fetch.wall_s": {0: 0.9, 1: 0.9}, "loader.workers": {0: 0, 1: 0}}
    fix = found(
        "DAT003", jobs.job({0: rank(input_wait=0.9), 1: rank(input_wait=0.9)}, values=asleep, cores=4.0, job_cores=0.2)
    )
    assert fix.fixes[0].title.startswith("num_workers=0 → 8,")


def test_another_limit_than_cores_binds_however_little_workers_compute(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(analysis_reading, "worker_cap", lambda a: 3)  # memory, say
    assert found("DAT003", TABLE.job(wait=0.9, wall=0.9, job_cores=1.0)).fixes[0].title.startswith("num_workers=0 → 3,")


def test_dat003_pins_memory_only_on_a_gpu() -> None:
    assert "pin_memory" not in found("DAT003", TABLE.job()).fixes[0].change
    assert "pin_memory=True" in found("DAT003", TABLE.job(facts={"0": {"cuda": "12.4"}, "1": {}})).fixes[0].change


def test_dat003_advises_cheaper_samples_where_no_core_is_idle() -> None:
    finding = found("DAT003", TABLE.job(cores=2.0, job_cores=2.0))
    assert finding.fixes[0].title.startswith("make samples cheaper")
    assert finding.saving is not None and finding.saving.speedup == pytest.approx((1.0, 1 / 0.6))


def test_cheaper_samples_point_at_the_line_that_takes_their_time_and_count_for_half_of_it() -> None:
    crowded = {"cores": 2.0, "job_cores": 2.0}
    line = SampleLine("resample", "/job/audio.py", 19, 60, 100)
    finding = found("DAT003", TABLE.job(**crowded, sample=SampleCost(9, 0.1, 0.1, lines=(line,))))
    assert finding.fixes[0].where == Where("/job/audio.py", 19) and "resample (audio.py:19)" in finding.fixes[0].change
    elsewhere = replace(line, seen=49)
    fix = found("DAT003", TABLE.job(**crowded, sample=SampleCost(9, 0.1, 0.1, lines=(elsewhere,)))).fixes[0]
    assert fix.where == LINE and "audio.py" not in fix.change
    assert found("DAT003", TABLE.job(wait=0.09, wall=0.09, **crowded)).severity == "low"
    assert found("DAT003", TABLE.job(wait=0.09, wall=0.09)).severity == "medium", "workers would help"


def test_one_costly_part_of_a_sample_is_the_cause_where_workers_do_not_help() -> None:
    assert found("DAT003", TABLE.job(cores=2.0, job_cores=2.0)).circumstances == {"better than workers"}
    assert not found("DAT003", TABLE.job()).circumstances


def test_dat003_without_a_place_still_says_what_to_do() -> None:
    fix = found("DAT003", TABLE.job(loaders=())).fixes[0]
    assert fix.where is None and "num_workers=1" in fix.change


def test_dat003_names_the_loader_that_trains() -> None:
    loaders = (loader(0, 0, line=10, training=False), loader(0, 0, line=42))
    where = found("DAT003", TABLE.job(loaders=loaders)).fixes[0].where
    assert where is not None and where.line == 42


@pytest.mark.parametrize(
    ("best_s", "worst_s", "workers"),
    [
        (1 / 1.03, 1.0, True),
        (1 / 1.01, 1.0, False),
        (1 / 1.03, 1.01, False),
        (1 / 1.20, 1.05, True),
        (1 / 1.20, 1.10, False),
    ],
)
def test_dat003_advises_no_workers_where_none_would_help(best_s: float, worst_s: float, workers: bool) -> None:
    given = jobs.dat003()
    assert given.forecast is not None
    n = len(given.forecast.best_s)
    forecast = replace(given.forecast, best_s=(1.0, *[best_s] * (n - 1)), worst_s=(1.0, *[worst_s] * (n - 1)))
    finding = found("DAT003", replace(given, forecast=forecast))
    assert (
        finding.fixes[0].title.startswith("num_workers=0 →" if workers else "make samples cheaper") and finding.saving
    )
    assert (finding.saving.speedup == pytest.approx((1.0, 1.0 / 0.6))) != workers


def test_dat003_promises_no_more_than_a_step_without_the_wait() -> None:
    given = jobs.dat003()
    assert given.forecast is not None
    n = len(given.forecast.best_s)
    finding = found("DAT003", replace(given, forecast=replace(given.forecast, best_s=(1.0, *[0.1] * (n - 1)))))
    assert finding.saving is not None and finding.saving.speedup[1] == pytest.approx(warm(1 / 0.6))
