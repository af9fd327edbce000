"""What the rules on threads, collections and memory say once they fired."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import host_rule_cases as host_jobs
import pytest
import rule_cases as jobs
from host_rule_tables import HOST_TABLES
from rule_cases import SCRIPT, rank
from rule_table import warm
from rule_tables import TABLES

from rn50_advisor.advisor.model.analysis import Analysis, PeriodicStall
from rn50_advisor.advisor.model.findings import Clear, Finding, NotMeasured, Where
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.rules.registry import all_rules

RULES = {rule.id: rule for rule in all_rules()}


def found(rule: str, analysis: Analysis | None = None, **given: Any) -> Finding:
    result = run_rule(RULES[rule], analysis or HOST_TABLES[rule].job(**given), Config())
    assert isinstance(result, Finding), result
    return result


@pytest.mark.parametrize(
    ("ranks", "cores", "threads"), [(1, 16.0, 16), (2, 16.0, 8), (3, 16.0, 5), (4, 2.0, 1), (1, 0.5, 1)]
)
def test_cpu005_gives_each_rank_its_share_of_the_cores(ranks: int, cores: float, threads: int) -> None:
    finding = found("CPU005", host_jobs.cpu005(threads=64, ranks=ranks, cores=cores))
    assert f"OMP_NUM_THREADS={threads}," in finding.fixes[0].title


def test_cpu005_promises_less_where_the_wait_may_be_another_ranks_work() -> None:
    """Of one step of a second in which the training thread waits 0.3 s for a core."""
    spinning, sleeping = found("CPU005"), found("CPU005", threads=64, waiting=28.0)
    assert spinning.saving is not None and sleeping.saving is not None
    assert spinning.saving.speedup == pytest.approx((1 / (1 - 0.7 * 0.3), warm(1 / (0.25 * 0.7))))
    assert sleeping.saving.speedup == pytest.approx((1.0, warm(1 / 0.7)))
    # with as many in line as make one rank lose by its own threads, two lose half as much: one computes while the other's team waits
    crowded = found("CPU005", threads=64, waiting=44.0).saving
    assert crowded is not None and crowded.speedup == pytest.approx((1 / (1 - 0.4 * 0.3), warm(1 / (0.75 * 0.7))))


def test_cpu006_tells_the_loops_own_collections_from_the_interpreters() -> None:
    assert "gc.freeze()" in found("CPU006").fixes[0].title
    own = {n: rank(gap=0.2) for n in (0, 1)}
    called = host_jobs.cpu006(between=0.2, own_s=own, hot_lines=(jobs.hot(70, "fit", io=False),))
    fix = found("CPU006", called).fixes[0]
    assert "collect less often" in fix.title and fix.where == Where(SCRIPT, 70)


def test_cpu006_promises_no_more_than_the_rest_of_the_step_allows() -> None:
    saving = found("CPU006", lost=0.9, own=0.9).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.55, 1 / 0.075))


def test_cpu006_names_the_ranks_that_collect() -> None:
    assert found("CPU006", only=1).scope.ranks == (1,)
    assert found("CPU006").scope.ranks == ()


def test_mem002_names_who_grows_and_how_long_memory_lasts() -> None:
    finding = found("MEM002", headroom=500.0)  # 60 MB a minute
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
    assert finding.scope.ranks == () and "the loader workers creeps" in finding.title


@pytest.mark.parametrize("role", ["rank", "worker"])
@pytest.mark.parametrize(("left_mb", "severity"), [(3100.0, "high"), (2900.0, "low")])
def test_mem002_knows_that_a_data_set_keeps_no_more_than_one_pass_reads(role, left_mb, severity) -> None:
    finding = found("MEM002", host_jobs.mem002((host_jobs.trend(role=role, left_mb=left_mb),)))
    assert finding.severity == severity and "data set keeps" in finding.fixes[0].title
    assert ("this pass over the data" in finding.evidence[-1].note) == (severity == "low")


def test_mem002_takes_what_a_worker_holds_anew_for_one_creep() -> None:
    both = tuple(host_jobs.trend(role="worker", copied=copied, left_mb=None) for copied in (False, True))
    assert [e.metric for e in found("MEM002", host_jobs.mem002(both)).evidence] == [
        "memory growth",
        "memory.headroom_mb",
    ]


def test_lop006_names_thread_function_and_line() -> None:
    finding = found("LOP006")
    assert finding.title == "Another thread holds the interpreter on rank 1"
    assert "what send_metrics does to a process" in finding.fixes[0].title
    assert any(
        e.value == "4 of 5" and f"sender had it, in send_metrics at {SCRIPT}:77" in e.note for e in finding.evidence
    )
    blind = found("LOP006", seen=False)
    assert blind.fixes[0].where is None and blind.confidence < finding.confidence


def test_lop006_promises_less_at_worst_where_no_core_is_left_for_the_work() -> None:
    """Two ranks train, and the thread of one wants a third core; at best neither stands in line any more."""
    full, room = found("LOP006", other=0.8, cores=2.0).saving, found("LOP006", other=0.8, cores=3.0).saving
    assert full is not None and room is not None
    assert room.seconds_per_step[0] == pytest.approx(0.18)
    assert full.seconds_per_step[0] == pytest.approx(0.18 - 0.1)
    assert full.seconds_per_step[1] > room.seconds_per_step[1]


def test_lop006_names_no_rank_where_all_wait() -> None:
    assert found("LOP006", everywhere=True, other=1.0).scope.ranks == ()


def test_lop006_is_not_measured_where_time_is_unexplained_and_nobody_could_look() -> None:
    result = run_rule(RULES["LOP006"], host_jobs.lop006(looked=False), Config())
    assert result == NotMeasured("LOP006", ("interpreter.waiting_share",))


def test_lop007_says_where_it_waits_and_promises_the_step_without() -> None:
    finding = found("LOP007")
    assert finding.title == "The step waits in fetch_features, and nothing is computed meanwhile"
    assert finding.scope.ranks == () and "loader workers do ahead what fetch_features" in finding.fixes[0].title
    assert finding.saving is not None and finding.saving.seconds_per_step == pytest.approx((0.15, 0.224))


def test_lop007_gives_back_sleep_within_the_backward_as_well() -> None:
    own = {number: rank(forward=0.1, backward=0.9) for number in (0, 1)}
    given = host_jobs.lop007(waits=0.4)
    assert given.model is not None
    saving = found("LOP007", replace(given, model=replace(given.model, own=own))).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.7, warm(1 / 0.6)))


def test_lop007_is_about_the_rank_that_waits_and_gains_what_the_others_need_less() -> None:
    finding = found("LOP007", alone=True)
    assert finding.title.endswith(" on rank 1") and finding.scope.ranks == (1,)
    assert finding.saving is not None and finding.saving.seconds_per_step[0] == pytest.approx(0.15)


def test_lop007_is_not_measured_where_a_rank_sleeps_and_no_profile_told_where() -> None:
    result = run_rule(RULES["LOP007"], host_jobs.lop007(seen=False), Config())
    assert result == NotMeasured("LOP007", ("step.waiting_s",))


def test_lop008_says_which_line_and_how_many_workers_that_takes() -> None:
    finding = found("LOP008")
    assert finding.title == "The loop prepares its batches itself, while the model waits" and finding.scope.ranks == ()
    assert "train.py:57 in train" in finding.evidence[1].note
    assert "1 worker or more (num_workers=1)" in finding.fixes[0].change
    assert "2 workers or more" in found("LOP008", making=0.6).fixes[0].change


@pytest.mark.parametrize(("samples", "worst"), [(80, 0.75), (16, 0.625)])
def test_lop008_promises_by_the_looks_and_at_worst_a_quarter_less(samples: int, worst: float) -> None:
    saving = found("LOP008", samples=samples).saving
    error = 1.5 / samples**0.5
    assert saving is not None and saving.seconds_per_step[0] == pytest.approx(0.2 * worst)
    assert saving.speedup[1] == pytest.approx(warm(1 / (1 - 0.2 * (1 + error))))


def test_lop008_promises_what_the_cores_carry() -> None:
    """Of a step of one second, so much is computed by all cores; where they are all busy, the line itself must cost less."""
    saving = found("LOP008", computed=1.8).saving
    assert saving is not None and saving.speedup == pytest.approx((1 / 0.9, warm(1 / 0.9)))
    full = found("LOP008", computed=2.0)
    assert "make this line cheaper" in full.fixes[0].title
    assert full.saving is not None and full.saving.speedup == pytest.approx((1.0, 1 / 0.8))


def test_lop008_is_about_the_rank_that_does_and_gains_what_the_others_need_less() -> None:
    finding = found("LOP008", alone=True)
    assert finding.title.endswith(" on rank 1") and finding.scope.ranks == (1,)
    assert finding.saving is not None and finding.saving.seconds_per_step[1] == pytest.approx(0.2, abs=0.04)


def test_lop008_is_not_measured_where_a_forward_pass_is_long_and_nobody_looked() -> None:
    result = run_rule(RULES["LOP008"], host_jobs.lop008(seen=False), Config())
    assert result == NotMeasured("LOP008", ("step.preparing_s",))
    unfed = host_jobs.lop008(seen=False)
    values = {key: value for key, value in unfed.values.items() if key[0] != "loader.workers"}
    assert run_rule(RULES["LOP008"], replace(unfed, values=values), Config()) == Clear("LOP008")


@pytest.mark.parametrize(("samples", "worst"), [(80, 0.732), (16, 0.525)])
def test_lop009_promises_a_tenth_of_it_as_far_as_the_looks_can_tell(samples: int, worst: float) -> None:
    finding, error = found("LOP009", samples=samples), 1.5 / samples**0.5
    assert finding.fixes[0].title == "do it every N steps" and finding.saving is not None
    assert finding.saving.seconds_per_step[0] == pytest.approx(0.2 * worst, rel=1e-3)
    assert finding.saving.speedup[1] == pytest.approx(warm(1 / (1 - 0.2 * (0.9 + error))))


def test_lop009_is_not_measured_where_a_forward_pass_is_long_and_nobody_looked() -> None:
    result = run_rule(RULES["LOP009"], host_jobs.lop009(seen=False), Config())
    assert result == NotMeasured("LOP009", ("step.measuring_s",))


def test_lop006_promises_by_the_looks_and_their_error() -> None:
    """Of one second, a fifth of it found waiting, give or take two hundredths; at best seven tenths of the rest are left."""
    saving = found("LOP006").saving
    assert saving is not None
    least = 0.7 * 0.78
    assert saving.seconds_per_step == pytest.approx((0.18, 1.0 - least * (1.0 - 0.15 * (1.0 - least))))


@pytest.mark.parametrize("rule", ["CPU003", "CPU005"])
@pytest.mark.parametrize(
    ("given", "explained"),
    [
        ({}, True),
        ({"coincides": "waiting for a core"}, True),
        ({"phase": "gap"}, False),
        ({"coincides": "a checkpoint"}, False),
    ],
)
def test_stalls_within_computing_come_of_threads_that_wait_for_cores(
    rule: str, given: dict[str, str], explained: bool
) -> None:
    stalls = PeriodicStall(5.0, None, 90, 463, 0.0175, 0.123, 0.5, None, "forward", "", 463)
    made = {**TABLES, **HOST_TABLES}[rule].job()
    finding = found(rule, replace(made, pulse=replace(stalls, **given)))
    assert ("RUN004" in finding.explains) == explained


@pytest.mark.parametrize(("share", "stalls"), [(0.2, True), (0.05, False)])
def test_what_sleeps_every_so_many_steps_is_a_stall_with_its_line(share: float, stalls: bool) -> None:
    pulse = PeriodicStall(10.0, None, 30, 300, 0.8, 2.0, share, None, "forward", "", 300)
    given = replace(host_jobs.lop007(), pulse=pulse)
    stall, waits = found("RUN004", given), found("LOP007", given)
    assert ("LOP007" in stall.explains) == stalls and ("RUN004" in waits.explains) != stalls
    assert (stall.fixes[0].where == waits.fixes[0].where) == stalls


@pytest.mark.parametrize(
    ("phase", "coincides", "explained"),
    [
        ("forward", "", True),
        ("backward", "", True),
        ("forward", "garbage collection", False),
        ("gap", "", False),
        ("input_wait", "", False),
        (None, "", False),
    ],
)
def test_what_sleeps_in_every_step_explains_stalls_of_the_same_phases_alone(
    phase: str | None, coincides: str, explained: bool
) -> None:
    pulse = phase and PeriodicStall(10.0, None, 30, 300, 0.8, 2.0, 0.05, None, phase, coincides, 300)
    finding = found("LOP007", replace(host_jobs.lop007(), pulse=pulse or None))
    assert ("RUN004" in finding.explains) == explained
