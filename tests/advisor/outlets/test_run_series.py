"""A reading as time series: what they are named in each engine, and what is not said."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from reading_samples import ended, reading
from report_samples import gpu, running
from rn50_advisor.advisor.model.report import INPUT_OR_FORWARD, Budget, Report, Throughput
from rn50_advisor.advisor.outlets.outlet import RunReading
from rn50_advisor.advisor.outlets.run_series import SeriesFamily, SeriesPoint, series_of


def values(report: Report) -> dict[str, dict[str, float]]:
    """By Prometheus's names; the points by their labels but the run's."""
    return {
        family.prometheus_name: {
            ",".join(f"{k}={v}" for k, v in point.labels.items() if k != "run"): point.value for point in family.points
        }
        for family in series_of(reading(report))
    }


def test_a_running_job_has_the_series_that_a_fleet_looks_at() -> None:
    report = running()
    told = values(report)
    assert told["rn50_advisor_job_running"] == {"": 1.0}
    assert told["rn50_advisor_samples_per_second"] == {"": report.throughput.samples_per_s}
    path = report.budget.critical
    assert told["rn50_advisor_input_wait_ratio"][""] == pytest.approx(path["input_wait"] / sum(path.values()))
    assert told["rn50_advisor_communication_exposed_ratio"][""] == pytest.approx(
        path["comm_exposed"] / sum(path.values())
    )
    assert told["rn50_advisor_steps_total"] == {f"rank={strip.rank}": strip.step for strip in report.ranks}
    phases = told["rn50_advisor_step_phase_duration_seconds"]
    for rank, budget in report.budget.per_rank.items():
        for phase, spent_s in budget.items():
            assert phases[f"rank={rank},phase={phase}"] == spent_s
    active = told["rn50_advisor_finding_active"]
    assert active == {
        f"rule={f.rule},severity={f.severity},explained_by={f.explained_by or ''}": 1.0 for f in report.findings
    }


def test_each_series_says_which_run_it_is_of() -> None:
    """Two runs may write into one folder of the textfile collector."""
    points = [point for family in series_of(reading(run="mine")) for point in family.points]
    assert len(points) > 20 and all(point.labels["run"] == "mine" for point in points)


def test_what_was_not_measured_has_no_series() -> None:
    report = running()
    unknown = replace(report, throughput=Throughput(None, None, None, 1), budget=Budget(), gpus=(), findings=())
    told = values(unknown)
    assert not {name for name in told if "samples" in name or "wait" in name or "communication" in name}
    assert not {name for name in told if "phase_duration" in name or "throttled" in name or "finding" in name}


def test_where_no_loader_was_seen_the_input_wait_is_not_said_to_be_zero() -> None:
    blurred = replace(running(), budget=Budget({INPUT_OR_FORWARD: 0.2, "backward": 0.2}))
    assert "rn50_advisor_input_wait_ratio" not in values(blurred)


def test_throttling_is_said_of_the_gpus_that_train_and_whose_driver_counts_it() -> None:
    gpus = (
        replace(gpu(0), ranks="0", throttled_pct=25.0),
        replace(gpu(1), ranks="1", throttled_pct=None),
        replace(gpu(2), ranks="", throttled_pct=50.0),
    )
    assert values(replace(running(), gpus=gpus))["rn50_advisor_gpu_throttled_ratio"] == {"gpu=0": 0.25}


def test_the_page_names_every_series_with_its_labels() -> None:
    page = (Path(__file__).resolve().parents[3] / "docs" / "how-to" / "metrics.md").read_text()
    rows = {name: line for line in page.splitlines() for name in re.findall(r"^\| (.*?) \|", line)}
    report = replace(running(), gpus=(replace(gpu(0), ranks="0", throttled_pct=25.0),))
    for family in [*series_of(reading(report)), *series_of(ended(3))]:
        (row,) = (line for names, line in rows.items() if f"`{family.prometheus_name}`" in names)
        labels = {label for point in family.points for label in point.labels} - {"run"}
        assert "the same" in row or not [label for label in labels if f"`{label}`" not in row], row


def test_the_dashboard_asks_for_series_and_labels_that_there_are() -> None:
    """Also where no Prometheus is installed that could be asked."""
    text = (Path(__file__).resolve().parents[3] / "integrations" / "grafana" / "rn50-advisor.json").read_text()
    report = replace(running(), gpus=(replace(gpu(0), ranks="0", throttled_pct=25.0),))
    families = {family.prometheus_name: family for family in series_of(reading(report))}
    targets = [target for panel in json.loads(text)["panels"] for target in panel["targets"]]
    for target in targets:
        (name,) = re.findall(r"rn50_advisor_\w+", target["expr"])
        labels = {label for point in families[name].points for label in point.labels}
        asked = re.findall(r"{{(\w+)}}", target["legendFormat"]) + re.findall(r"by \(([\w, ]+)\)", target["expr"])
        assert {label for words in asked for label in words.split(", ")} <= labels, target
    assert len(targets) > 10


@pytest.mark.parametrize(("code", "signal", "said"), [(0, None, 0.0), (3, None, 3.0), (None, "SIGKILL", 137.0)])
def test_of_a_job_that_has_ended_only_its_end_is_said(code: int | None, signal: str | None, said: float) -> None:
    """What a collector goes on showing for days must still be true."""
    families = {family.name: family for family in series_of(ended(code, signal))}
    assert set(families) == {"run.info", "job.running", "job.duration", "job.exit_code", "reading.timestamp"}
    assert [families[name].points[0].value for name in ("job.running", "job.exit_code")] == [0.0, said]


@pytest.mark.parametrize("told", [reading(is_last=True), ended(None)], ids=["killed advisor", "full disk"])
def test_of_a_job_that_may_outlive_its_recording_no_state_is_said(told: RunReading) -> None:
    assert {family.name for family in series_of(told)} == {"run.info", "job.duration", "reading.timestamp"}


@pytest.mark.parametrize(
    ("name", "unit", "kind", "otel", "prometheus"),
    [
        ("step.duration", "s", "gauge", "rn50_advisor.step.duration", "rn50_advisor_step_duration_seconds"),
        ("steps", "{step}", "total", "rn50_advisor.steps", "rn50_advisor_steps_total"),
        ("input_wait", "1", "gauge", "rn50_advisor.input_wait", "rn50_advisor_input_wait_ratio"),
        ("samples", "{sample}/s", "gauge", "rn50_advisor.samples", "rn50_advisor_samples_per_second"),
        ("job.running", "", "gauge", "rn50_advisor.job.running", "rn50_advisor_job_running"),
    ],
)
def test_a_name_follows_the_conventions_of_each_engine(
    name: str, unit: str, kind: str, otel: str, prometheus: str
) -> None:
    family = SeriesFamily(name, unit, "what", (SeriesPoint(1.0, {}),), kind)  # type: ignore[arg-type]
    assert (family.otel_name, family.prometheus_name) == (otel, prometheus)
