"""What makes a machine an outlier whatever its numbers are: lost GPUs, or a triage that rejects it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from fleet_samples import job_report, results_of, triage
from rn50_advisor.advisor.fleet.fleet_ranking import rank
from rn50_advisor.advisor.report.fleets import render

HOST = {"cpu.model": "EPYC 7R13", "cpu.cores_seen": 96.0}


def with_gpus(host: str, count: int, **facts: Any) -> dict[str, Any]:
    made = triage(host, **facts)
    made["checks"] = [c for c in made["checks"] if not (c["name"].endswith(".name") and int(c["name"][4]) >= count)]
    return made


@pytest.mark.parametrize(
    ("sisters", "odd", "facts", "flagged"),
    [
        (3, 7, HOST, True),
        (2, 7, HOST, False),  # of three machines it is unknown which one is normal
        (20, 7, {}, True),
        (20, 4, {**HOST, "cpu.cores_seen": 48.0}, False),  # another instance, sold with four
        (20, 0, HOST, True),
        (20, 0, {**HOST, "cpu.cores_seen": 8.0}, False),  # a head node
        (20, 0, {}, False),
        (20, 8, HOST, False),
    ],
)
def test_a_machine_with_fewer_gpus_than_its_sisters_is_an_outlier(
    sisters: int, odd: int, facts: dict[str, Any], flagged: bool
) -> None:
    documents = [with_gpus(f"m{n}", 8, **(facts and HOST)) for n in range(sisters)]
    made = rank(results_of(*documents, with_gpus("odd", odd, **facts)))
    assert [one.name for one in made.outliers] == (["odd"] if flagged else [])
    assert not flagged or (
        "GPU" in made.machines[0].flaws[0] and made.machines[0].flaws[0] in " ".join(render(made, "text").split())
    )


def test_six_machines_of_one_size_are_a_kind_and_a_job_on_a_part_of_the_gpus_is_none() -> None:
    eight = [with_gpus(f"m{n}", 8, **HOST) for n in range(40)]
    assert rank(results_of(*eight, *(with_gpus(f"s{n}", 4, **HOST) for n in range(6)))).outliers == ()
    assert len(rank(results_of(*eight, *(with_gpus(f"s{n}", 4, **HOST) for n in range(5)))).outliers) == 5
    assert rank([*results_of(*eight), replace(job_report("m99"), models=("A100-SXM",) * 2)]).outliers == ()


def test_a_machine_that_its_triage_hands_back_is_an_outlier_until_it_is_mended() -> None:
    bad = triage("m0", **{"machine.made_at": 5.0})
    bad["verdict"] = {"state": "hand-back", "reasons": ["GPU 3 is lost"]}
    [odd] = rank(results_of(bad, triage("m1"))).outliers
    assert odd.name == "m0" and odd.flaws == ("its triage advises to replace it: GPU 3 is lost",)
    assert rank(results_of(bad, triage("m0", **{"machine.made_at": 6.0}))).outliers == ()
