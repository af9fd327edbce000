"""The analysis of a trace holds no zeros of columns that a trace leaves empty."""

from __future__ import annotations

from dataclasses import replace

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.measures.comm_measures import COMM_WIRE_S
from rn50_advisor.advisor.model.measures.input_measures import FETCH_CPU_SHARE, FETCH_WALL_S
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.step_measures import STEP_GC_S, STEP_RUN_DELAY_S, STEP_TIME_S
from rn50_advisor.advisor.model.recording import Meta
from rn50_advisor.advisor.model.report import Capacity, Overhead, StepTime, Throughput
from rn50_advisor.advisor.model.seen_share import Coverage
from rn50_advisor.advisor.verdict.traced_analysis import UNSEEN, as_traced

META = Meta("t", (), "", "", 0.0, 0, 1, traced=True)


def analysis(*, traced: bool = True) -> Analysis:
    return Analysis(
        meta=replace(META, traced=traced),
        world_size=1,
        step_time=StepTime(0.1, 0.1, 108, 3),
        throughput=Throughput(None, 10.0, None, 1),
        values={(STEP_TIME_S, JOB): 0.1, (STEP_GC_S, 0): 0.0, (FETCH_CPU_SHARE, 0): 1.0, (FETCH_WALL_S, 0): 0.05},
        reasons={(STEP_RUN_DELAY_S, JOB): "no schedstat", (COMM_WIRE_S, JOB): "one rank"},
        coverage=Coverage(steps=4, total_s=0.4, unseen_batches=0, unseen_s=0.0, after_s=0.0),
        capacities=(
            Capacity("storage", None, None, None, "no schedstat"),
            Capacity("preprocessing", 90.0, 80.0, 100.0, "CPU time per sample"),
            Capacity("compute", 200.0, 190.0, 210.0, "all steps"),
        ),
        overhead=Overhead(us_per_step=0.0),
    )


def test_what_a_trace_does_not_show_is_no_measurement() -> None:
    found = as_traced(analysis())
    assert set(found.values) == {(STEP_TIME_S, JOB), (FETCH_WALL_S, 0)}
    assert not found.has(STEP_GC_S)
    assert found.overhead == Overhead()


def test_reasons_that_speak_of_absent_probes_are_dropped() -> None:
    assert list(as_traced(analysis()).reasons) == [(COMM_WIRE_S, JOB)]


def test_capacities_say_what_they_come_from() -> None:
    storage, preprocessing, compute = as_traced(analysis()).capacities
    assert storage.basis == UNSEEN
    assert "fetches" in preprocessing.basis
    assert compute.basis == "all steps"


def test_steps_are_counted_whatever_their_numbers_begin_with() -> None:
    assert as_traced(analysis()).step_time.steps == 4


def test_a_recorded_run_stays_as_it_is() -> None:
    recorded = analysis(traced=False)
    assert as_traced(recorded) is recorded
