"""What one result says of its machine."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fleet_samples import check, job_report, results_of, triage
from rn50_advisor.advisor.fleet.fleet_ranking import rank
from rn50_advisor.advisor.report.fleets import render


def test_what_was_disturbed_proves_nothing() -> None:
    busy = triage("m9", {"memory.copy_gb_per_s": 2.0})
    busy["checks"] = [
        {**one, "state": "unknown"} if one["name"].startswith("memory") else one for one in busy["checks"]
    ]
    made = rank(results_of(*(triage(f"m{n}") for n in range(9)), busy))
    assert made.outliers == ()
    assert next(m for m in made.machines if m.name == "m9").missing == ("memory.copy_gb_per_s",)


def test_counts_that_are_zero_everywhere_else_are_outliers_without_a_share() -> None:
    documents = [triage(f"m{n}") for n in range(9)]
    for n, document in enumerate(documents):
        document["checks"].append(check("gpu.0.ecc_uncorrected", 3.0 if n == 4 else 0.0, "errors", hi=0.0))
    [odd] = rank(results_of(*documents)).outliers
    assert odd.name == "m4" and odd.deviations[0].deviation is None


@pytest.mark.parametrize(("stolen", "outlier"), [(0.001, False), (0.0024, False), (0.006, True), (0.04, True)])
def test_what_should_be_nothing_is_held_against_its_limit(stolen: float, outlier: bool) -> None:
    """Any amount is infinitely more than zero; a twentieth of the limit is not worth a mention."""
    documents = [triage(f"m{n}") for n in range(9)]
    for n, document in enumerate(documents):
        document["checks"].append(check("cpu.steal_share", stolen if n == 4 else 0.0, "share", hi=0.05))
    made = rank(results_of(*documents))
    assert [machine.name for machine in made.outliers] == (["m4"] if outlier else [])
    assert not outlier or "of the others 0 %" in render(made, "text")


def test_a_job_on_a_part_of_the_gpus_does_not_make_another_machine() -> None:
    part = replace(job_report("m0"), models=("A100-SXM",) * 2)
    assert [machine.group for machine in rank([part, *results_of(triage("m0"))]).machines] == ["8 × A100-SXM"]
    assert [machine.group for machine in rank([part]).machines] == ["2 × A100-SXM"]


def test_of_a_job_the_phase_that_is_longer_is_named() -> None:
    others = [job_report(f"m{n}", 1000.0 + n) for n in range(8)]
    [odd] = rank([*others, job_report("slow", 700.0, input_wait=0.04)]).outliers
    assert odd.name == "slow" and odd.worst is not None and odd.worst.endswith("waiting for input")
    assert odd.deviations[0].deviation == pytest.approx(-0.4, abs=0.02), "four tenths of a usual step"
    twice = rank([*others, job_report("wait", 1000.0, input_wait=0.002)])
    assert twice.outliers == (), "a wait that doubled and is still nothing"
