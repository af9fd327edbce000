"""The bench that measures the advisor: its statistics, its tables, and one quick run of it on a real job."""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from bench_results import Footprint, Results, StartUp, StepCost, SwitchedCost, footprint, machine, paired, step_cost
from bench_runs import JOBS, BenchJob, Own, Seen, run_inside
from bench_tables import markdown, sheets
from sampling import interval_95, level, standard_error

BENCH = Path(__file__).resolve().parent
JOB = BenchJob("1ms", 1, 0)
SEEN = Seen(step_s=0.001, steps=100, start_s=2.0, end_s=0.1, torch="2.15")
OWN = Own(recorder_us=12.0, agent_cpu_s=0.3, agent_wall_s=5.0, folder_bytes=100_000, lost_records=0, shed=())
WATCHED = replace(SEEN, step_s=0.00102, start_s=2.1, end_s=0.9, own=OWN)


def test_what_takes_the_core_for_a_moment_counts_for_two_steps_at_most() -> None:
    assert level([1.0, 1.0, 1.0, 1.0, 100.0]) == pytest.approx(6 / 5)


def test_a_cost_in_one_step_of_twenty_is_not_lost() -> None:
    assert level([100.0] * 19 + [160.0]) == pytest.approx(103.0)


def test_the_interval_lies_around_the_median_and_is_the_same_each_time() -> None:
    values = [1.01, 1.02, 1.00, 1.05, 1.02]
    low, high = interval_95(values)
    assert 1.00 <= low <= statistics.median(values) <= high <= 1.05
    assert interval_95(values) == (low, high)


def test_more_measurements_have_a_smaller_error() -> None:
    assert standard_error([1.0, 2.0, 3.0] * 30) < standard_error([1.0, 2.0, 3.0])


def test_pairs_are_compared_one_by_one() -> None:
    slow_machine = (replace(SEEN, step_s=0.002), replace(WATCHED, step_s=0.00204))
    cost = paired([SEEN, slow_machine[0], SEEN], [WATCHED, slow_machine[1], WATCHED])
    assert cost.ratio == cost.ratio_low == cost.ratio_high == pytest.approx(1.02)
    assert cost.more_us == pytest.approx(20)
    assert cost.start_more_s == pytest.approx(0.1) and cost.end_more_s == pytest.approx(0.8)


def test_start_and_end_of_a_run_are_left_out_of_what_grows_with_it() -> None:
    long_own = replace(OWN, agent_cpu_s=0.7, agent_wall_s=45.0, folder_bytes=500_000)
    cost = footprint(JOB, WATCHED, replace(WATCHED, steps=40_100, own=long_own))
    assert cost.agent_cpu_share == pytest.approx(0.01)
    assert cost.bytes_per_1000_steps == pytest.approx(10_000)


def results(traceml: str = "") -> Results:
    ran = step_cost(JOB, [SEEN] * 2, [WATCHED] * 2, [replace(SEEN, step_s=0.0016)] * 2 if traceml == "0.5.0" else [])
    left_out = StepCost("1ms-2r-2w", "about 1 ms, 2 ranks, 2 workers", 2, 2, skipped="needs 4 cores")
    return Results(
        2,
        quick=False,
        traceml=traceml,
        steps=[ran, left_out],
        switched=[SwitchedCost(JOB.name, JOB.title, 980.0, 20.5, 1.25, 11.0, 0.5, 40, 64)],
        marks=[SwitchedCost(JOB.name, JOB.title, 980.0, 14.7, 0.5, 9.0, 0.5, 10, 512, {"fetch": 9.5, "batch": 5.2})],
        start_up=[StartUp("python -c pass", "the recorder alone", 0.02, 0.003)],
        footprints=[Footprint(JOB.name, JOB.title, 46.0, 0.0123, 56_000.0, 100_000, 0, ("stacks",))],
    )


@pytest.mark.parametrize(
    ("traceml", "shown"),
    [
        (
            "",
            ["| about 1 ms, 1 rank | 1 ms | +20 µs | +2.0 % (+2.0 … +2.0) | 12.0 µs |", "| not run | needs 4 cores |"],
        ),
        ("0.5.0", ["+600 µs | +60.0 % (+60.0 … +60.0) |", "TraceML: 0.5.0."]),
        ("not installed: pip install traceml-ai", ["| not installed: pip install traceml-ai | – |"]),
    ],
)
def test_the_kept_result_shows_each_cost(traceml: str, shown: list[str]) -> None:
    text = markdown(results(traceml), machine())
    for part in [
        *shown,
        "+20.5 ± 1.2 µs",
        "+2.09 %",
        "fetch 9.5, batch 5.2",
        "1.23 %",
        "56 kB",
        "stacks",
        "`python -c pass`, the recorder alone",
    ]:
        assert part in text
    assert platform.node() not in text


@pytest.mark.parametrize("traceml", ["", "0.5.0", "not installed"])
def test_every_row_fits_its_headings(traceml: str) -> None:
    for sheet in sheets(results(traceml)):
        assert {len(row) for row in sheet.rows} == {len(sheet.headings)}, sheet.title


def test_a_quick_run_says_that_it_measured_nothing() -> None:
    quick = results()
    quick.quick = True
    assert "quick run" in markdown(quick, machine())


def bench(*arguments: str | Path, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(BENCH / "overhead.py"), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=timeout_s, check=False)


def test_a_pattern_that_fits_no_job_is_refused() -> None:
    done = bench("--only", "7ms*")
    assert done.returncode == 2
    assert "7ms*" in done.stderr and JOBS[0].name in done.stderr


@pytest.mark.torch
@pytest.mark.parametrize("script", ["switched.py", "marks.py"])
def test_the_recorder_can_be_switched_only_where_there_is_one(tmp_path: Path, script: str) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "RN50_ADVISOR_DIR"}
    command = [sys.executable, str(BENCH / script), f"--took={tmp_path / 'took'}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120, check=False)
    assert done.returncode == 1
    assert "rn50-advisor run" in done.stderr


@pytest.mark.torch
def test_the_bench_runs_on_its_smallest_job(tmp_path: Path) -> None:
    file, kept = tmp_path / "overhead.json", tmp_path / "RESULTS.md"
    missing = "--traceml=no-such-traceml"
    done = bench("--quick", "--only", "1ms-1r-0w", missing, "--json", file, "--markdown", kept, timeout_s=240)
    assert done.returncode == 0, done.stderr
    document = json.loads(file.read_text())
    assert document["schema"] == "rn50-advisor/overhead/1"
    assert {"date", "cores", "memory_gib", "python", "torch", "kernel"} == document["machine"].keys()
    (cost,) = document["steps"]
    assert cost["job"] == "1ms-1r-0w" and cost["steps"] > 0 and len(cost["rounds"]) == 2
    assert cost["advisor"].keys() >= {"step_s", "more_us", "ratio", "ratio_low", "ratio_high", "start_more_s"}
    assert cost["recorder_us"] > 0 and cost["traceml"] is None
    (switched,) = document["switched"]
    assert switched["off_us"] > 0 and switched["error_us"] > 0
    (marks,) = document["marks"]
    assert sum(marks["marks_us"].values()) > 0 and marks["error_us"] > 0
    (beside,) = document["footprints"]
    assert beside["bytes_per_1000_steps"] > 0 and beside["lost_records"] == 0
    assert "pip install traceml-ai" in kept.read_text()


@pytest.mark.torch
@pytest.mark.parametrize("script", ["switched.py", "marks.py"])
@pytest.mark.parametrize("events", ["thinned", "each"])
def test_a_job_can_be_timed_as_if_on_a_gpu(script: str, events: str) -> None:
    """The script itself fails if no event was taken."""
    took = run_inside(script, JOB, 2, events)
    assert took["off_us"] > 0 and took["pairs"] == 2
