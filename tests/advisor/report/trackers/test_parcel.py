"""What any tracker is sent: curves at the steps of the run, the verdict, the findings."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise

import pytest

from history_samples import SLICES, with_history
from report_samples import bottleneck
from rn50_advisor.advisor.model.report import PHASES, Report
from rn50_advisor.advisor.report.trackers.parcel import PHASE_SECONDS, STEP_SECONDS, Parcel, parcel_of


def parcel(report: Report, *, identity: str = "one") -> Parcel:
    return parcel_of(report, started_unix_s=1000.0, identity=identity)


def test_points_stand_at_the_steps_at_which_slices_end() -> None:
    report = with_history(bottleneck())
    points = parcel(report).points
    assert report.history is not None
    done = sum(report.history.steps[0])
    assert len(points) <= SLICES and points[-1].step == math.floor(done + 1e-6) - 1
    assert all(earlier.step < later.step for earlier, later in pairwise(points))
    assert points[-1].unix_s == pytest.approx(1000.0 + report.job.duration_s)


def test_the_phases_of_a_point_sum_to_its_step() -> None:
    for point in parcel(with_history(bottleneck())).points:
        phases = {name: value for name, value in point.values.items() if name.startswith(PHASE_SECONDS)}
        assert sum(phases.values()) == pytest.approx(point.values[STEP_SECONDS])
        assert {name.removeprefix(PHASE_SECONDS) for name in phases} <= {name.replace(".", "_") for name in PHASES}
        assert point.values["input_wait_ratio"] == pytest.approx(
            point.values["step_phase_seconds/input_wait"] / point.values[STEP_SECONDS]
        )


def test_a_step_that_spans_several_slices_is_one_point() -> None:
    report = with_history(bottleneck())
    assert report.history is not None
    slow = replace(report, history=replace(report.history, steps={0: (0.25,) * SLICES, 1: (0.25,) * SLICES}))
    assert [point.step for point in parcel(slow).points] == list(range(SLICES // 4))


def test_slices_without_a_step_and_unknown_values_are_left_out() -> None:
    report = with_history(bottleneck())
    assert report.history is not None
    curves = {name: (None, math.nan, *curve[2:]) for name, curve in report.history.phases.items()}
    points = parcel(replace(report, history=replace(report.history, phases=curves))).points
    assert len(points) == SLICES - 2
    assert all(math.isfinite(value) for point in points for value in point.values.values())


def test_a_run_without_a_step_has_its_verdict_and_no_points() -> None:
    made = parcel(bottleneck())
    assert made.points == () and made.last_step == -1
    assert made.facts["rule"] == "DAT003" and made.tags == ("bottleneck", "DAT003")


def test_a_gain_is_named_only_where_one_is_predicted() -> None:
    report = bottleneck()
    finding = report.findings[0]
    assert finding.saving is not None
    assert parcel(report).facts["speedup_high"] == finding.saving.speedup[1]
    vague = replace(finding, saving=None)
    assert "speedup_high" not in parcel(replace(report, findings=(vague,))).facts


def test_the_key_is_that_of_the_run() -> None:
    assert parcel(bottleneck()).key == parcel(with_history(bottleneck())).key
    assert parcel(bottleneck()).key != parcel(bottleneck(), identity="another").key


def test_findings_cannot_break_out_of_their_table() -> None:
    report = bottleneck()
    hostile = replace(report.findings[0], title="a | b\n<script>alert(1)</script> [x](javascript:y)")
    made = parcel(replace(report, findings=(hostile,)))
    assert made.summary.count("\n| ") == 2 and "<script" not in made.summary.replace("\\<script", "")
    assert "](" not in made.summary.replace("\\](", "")


def test_secrets_are_masked() -> None:
    report = bottleneck()
    token = "hf_" + "a1B2c3D4e5" * 4
    shown = replace(report.findings[0], title=f"loads with HF_TOKEN={token}")
    made = parcel(replace(report, findings=(shown,), verdict=replace(report.verdict, title=shown.title)))
    assert token not in repr((made.facts, made.findings, made.summary))


def test_whether_the_job_goes_on_and_how_it_ended_are_known() -> None:
    report = bottleneck()
    for job, expected in (
        (replace(report.job, running=True, exit_code=None, exit_signal=None), (True, 0)),
        (replace(report.job, running=False, exit_code=3, exit_signal=None), (False, 3)),
        (replace(report.job, running=False, exit_code=None, exit_signal="SIGKILL"), (False, 1)),
    ):
        made = parcel(replace(report, job=job))
        assert (made.running, made.exit_code) == expected
