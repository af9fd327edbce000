"""The published table is made of its rows, and the rows keep what is promised of the advisor."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from statistics import median

from samples.faults.catalogue import SCENARIOS
from samples.faults.results import markdown, read_json
from samples.faults.score import FAULTY, PROMPT_S, Result, summarise

FOLDER = Path(__file__).resolve().parents[3] / "samples" / "faults"
ROWS = [row for row in read_json(FOLDER / "results.json.gz") if not row.skipped]
JOBS = [row for row in ROWS if not row.recorded]
# Causes of slow input, each with a rule of its own.
INPUT = ("DAT001", "DAT002", "DAT003", "DAT004", "DAT005", "DAT006", "DAT007", "DAT008", "DAT009", "DAT011")
ASKED = 3  # repetitions


def latest(rows: Sequence[Result]) -> list[Result]:
    """The newest repetitions of each scenario, which count."""
    by_name: dict[str, list[Result]] = {}
    for row in rows:
        by_name.setdefault(row.scenario, []).append(row)
    return [row for found in by_name.values() for row in found[-ASKED:]]


def test_the_table_is_made_of_the_rows() -> None:
    late = {scenario.name: scenario.late for scenario in SCENARIOS}
    assert (FOLDER / "RESULTS.md").read_text() == markdown(read_json(FOLDER / "results.json.gz"), late)


def test_nine_of_ten_faults_are_found_on_the_right_rank() -> None:
    faults = [row for row in JOBS if row.strength in FAULTY]
    assert len({row.scenario for row in faults}) >= 40
    assert sum(row.right for row in faults) >= 0.9 * len(faults)


def test_no_sound_job_is_accused() -> None:
    sound = [row for row in latest(JOBS) if row.primary == "healthy" and row.strength == "none"]
    assert len({row.scenario for row in sound}) >= 8
    assert {row.scenario: row.false_alarms for row in sound if row.false_alarms} == {}


def test_four_of_five_speed_ups_lie_in_intervals_that_say_something() -> None:
    summary = summarise(JOBS)
    assert summary.inside >= 0.8 * summary.predictions
    assert summary.median_width is not None and summary.median_width <= 0.5


def test_verdicts_come_soon() -> None:
    why = {scenario.name for scenario in SCENARIOS if scenario.late}
    assert {row.scenario for row in latest(JOBS) if row.prompt is False} <= why, f"later than {PROMPT_S} s"


def test_causes_of_slow_input_are_distinguished() -> None:
    cases = [row for row in latest(JOBS) if row.primary in INPUT and row.strength in FAULTY]
    assert {row.primary for row in cases} == set(INPUT)
    assert sum(row.right for row in cases) >= 0.95 * len(cases)


def test_a_faster_wire_brings_what_was_predicted() -> None:
    """Within 15 %, of every job that then ran on one, in the median of its repetitions."""
    faster = {s.name for s in SCENARIOS if s.remedy and s.remedy.promise and s.remedy.job is None}
    off: dict[str, list[float]] = {name: [] for name in faster}
    for row in latest(JOBS):
        if row.scenario in faster and row.predicted and row.measured:
            off[row.scenario].append(sum(row.predicted) / 2 / row.measured - 1)
    assert {name: found for name, found in off.items() if not found or abs(median(found)) > 0.15} == {}


def test_slow_ranks_and_slow_wires_are_distinguished_again_and_again() -> None:
    matrix = [row for row in JOBS if row.scenario.startswith("among-")]
    names = {scenario.name for scenario in SCENARIOS if scenario.name.startswith("among-")}
    assert {row.scenario for row in matrix} == names and len(matrix) >= ASKED * len(names)
    assert sum(row.right for row in matrix) >= 0.95 * len(matrix)
    assert not [row for row in matrix if row.false_alarms]
