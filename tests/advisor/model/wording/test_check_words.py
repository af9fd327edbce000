"""How much of a job was checked, and verdicts on few steps."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.report import OutcomeRow, Report, StepTime
from rn50_advisor.advisor.model.wording.check_words import (
    coverage,
    is_preliminary,
    made_and_applying,
    preliminary_words,
)
from rn50_advisor.advisor.report import render


def early(steps: int = 8, steady: int = 5, *, running: bool = True) -> Report:
    report = samples.healthy()
    return replace(
        report, step_time=StepTime(0.1, 0.1, steps, steady), job=replace(report.job, running=running, exit_code=0)
    )


@pytest.mark.parametrize(("steady", "preliminary"), [(5, True), (29, True), (30, False)])
def test_few_steps_without_a_finding_are_no_healthy_job_yet(steady: int, preliminary: bool) -> None:
    assert is_preliminary(early(steady=steady)) == preliminary
    assert not is_preliminary(replace(early(steady=steady), verdict=samples.bottleneck().verdict))


def test_of_a_job_that_ended_nothing_more_will_come() -> None:
    assert preliminary_words(early()) == "No bottleneck so far (8 steps)"
    assert preliminary_words(early(1, running=False)) == "No bottleneck seen (1 step)"


def test_checks_of_what_a_job_does_not_have_do_not_apply_to_it() -> None:
    rows = (
        OutcomeRow("DAT001", "clear"),
        OutcomeRow("DAT002", "fired"),
        OutcomeRow("CPU002", "not_measured", ("cpu.steal_s",)),
        OutcomeRow("GPU001", "not_measured", ("step.steady", "gpu.throttled_share")),
        OutcomeRow("COM001", "not_measured", ("comm.wire_s",)),
        OutcomeRow("DAT003", "crashed", ("ZeroDivisionError",)),
    )
    report = replace(early(), outcomes=rows)
    assert made_and_applying(report) == (2, 6), "eight ranks on GPUs"
    assert coverage(report) == "2 of 6 checks made"
    alone = replace(report, gpus=(), job=replace(report.job, ranks=1))
    assert made_and_applying(alone) == (2, 4)
    assert made_and_applying(replace(alone, facts={"0": {"cuda": "13.0"}})) == (2, 5)
    assert coverage(replace(alone, outcomes=())) == ""


@pytest.mark.parametrize("format", ["text", "md", "html"])
def test_every_format_says_so(format: str) -> None:
    shown = " ".join(render(early(), format).replace("\\", "").split())
    assert "No bottleneck so far (8 steps)" in shown and "5 of 5 checks made" in shown
    assert "Healthy" not in shown and 'class="verdict is-healthy"' not in shown
    whole = render(samples.healthy(), format)
    assert "Healthy" in whole and "5 of 5 checks made" in whole and "so far" not in whole
    assert "checks made" not in render(samples.bottleneck(), format)
