"""Stages: marks that say what the verdict says, and the rate of stages that share the training process."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.advisor.model.report import Capacity, Report
from rn50_advisor.advisor.model.wording.stage_words import (
    STAGE_OF_RULE,
    rows,
    serial_limit,
    stage_marks,
    stage_of,
    stage_title,
)
from rn50_advisor.rules.registry import all_rules


def judged(rule: str, bounds: tuple[float, float] | None = None) -> Report:
    """The job of 109 samples/s with another verdict, and what its fix is predicted to gain."""
    report = samples.bottleneck()
    saving = None if bounds is None else Saving((0.0, 0.1), bounds, "a test", bounds=bounds)
    finding = replace(report.findings[0], rule=rule, saving=saving)
    return replace(report, verdict=replace(report.verdict, rule=rule), findings=(finding,))


@pytest.mark.parametrize("rule", ["LOP006", "RUN004", "CPU001", "MEM001", "COM002", "GPU004", "ABC001"])
def test_a_verdict_about_no_stage_marks_none(rule: str) -> None:
    assert stage_marks(judged(rule, (2.0, 9.0))) == {}


@pytest.mark.parametrize(
    ("rule", "bounds", "marks"),
    [
        ("DAT003", None, {"preprocessing": "bottleneck"}),
        ("DAT003", (1.5, 3.0), {"preprocessing": "bottleneck"}),  # 327/s: computing allows 424
        ("DAT003", (1.5, 3.6), {"preprocessing": "bottleneck", "compute": "caps the gain"}),
        ("CMP002", (1.1, 1.2), {"compute": "bottleneck"}),  # not the bottleneck that is slowest alone
        ("CMP002", (1.1, 1.3), {"compute": "bottleneck", "preprocessing": "caps the gain"}),
        ("COM001", (1.01, 1.02), {"communication": "bottleneck"}),
        ("DAT007", (1.1, 1.2), {}),  # of a stage that was not measured
    ],
)
def test_marks_are_what_the_verdict_and_its_prediction_say(
    rule: str, bounds: tuple[float, float] | None, marks: dict[str, str]
) -> None:
    assert stage_marks(judged(rule, bounds)) == marks


def test_a_healthy_job_has_a_slowest_stage_and_no_bottleneck() -> None:
    report = samples.healthy()
    assert stage_marks(report) == {"compute": "slowest stage"}
    assert stage_marks(replace(report, capacities=report.capacities[-1:])) == {}, "one alone is no slowest"


@pytest.mark.parametrize("make", [samples.hang, samples.dead_rank, samples.young, samples.inconclusive])
def test_a_job_that_failed_or_is_not_judged_has_no_marks(make) -> None:
    assert stage_marks(make()) == {}


def test_every_rule_that_is_sorted_by_its_id_exists() -> None:
    assert set(STAGE_OF_RULE) <= {rule.id for rule in all_rules()}
    assert stage_of("DSK001") == "storage" and stage_of("DAT006") == "" and stage_of(None) == ""


def test_times_of_stages_in_one_process_add_up() -> None:
    report = samples.bottleneck()
    together = serial_limit(report)
    assert together is not None and together.samples_per_s == pytest.approx(
        1 / (1 / 2310 + 1 / 154 + 1 / 424 + 1 / 7100)
    )
    assert together.basis.startswith("storage, preprocessing, compute and communication share the training process")
    assert rows(report) == (*report.capacities, together)


def test_stages_of_workers_are_alternatives() -> None:
    report = replace(samples.bottleneck(), facts={"0": {"loaders": [{"training": True, "num_workers": 2}]}})
    assert serial_limit(report) is None and rows(report) == report.capacities
    assert serial_limit(replace(samples.bottleneck(), worker_curve=None)) is None, "not known"
    loaders = [{"training": True, "num_workers": 0}, {"training": False, "num_workers": 4}]
    own = replace(report, worker_curve=None, facts={"0": {"loaders": loaders}, "torch": "2.8"})
    assert serial_limit(own) is not None
    assert serial_limit(replace(own, capacities=(Capacity("compute", 5.0, None, None, ""),))) is None


def test_unknown_stages_keep_their_names() -> None:
    assert stage_title("loader") == "worker-to-loop transfer" and stage_title("own") == "own"
