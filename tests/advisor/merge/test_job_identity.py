"""Which runs are nodes of one job."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nodes import four_ranks, two_nodes, with_launcher_variables
from rn50_advisor.advisor.merge.job_identity import identity_of, same_job
from rn50_advisor.advisor.model.recording import Recording


@pytest.mark.parametrize(
    ("change", "same"),
    [
        ({}, True),
        ({"MASTER_PORT": "29501"}, False),
        ({"MASTER_ADDR": "127.0.0.1"}, False),  # any job has this address
        ({"MASTER_PORT": "29501", "SLURM_JOB_ID": "77"}, False),
    ],
)
def test_runs_of_one_job_are_recognised_by_their_launchers_variables(change: dict[str, str], same: bool) -> None:
    first, second = (identity_of(with_launcher_variables(r, {})) for r in two_nodes(four_ranks()))
    other = identity_of(with_launcher_variables(two_nodes(four_ranks())[1], change))
    assert same_job(first, second)
    assert same_job(first, other) == same


@pytest.mark.parametrize(("script", "same"), [("train.py", True), ("other.py", False)])
def test_runs_without_a_launcher_are_one_job_if_together_they_fill_its_world(script: str, same: bool) -> None:
    first, second = (unnamed(own) for own in two_nodes(four_ranks()))
    other = replace(second, meta=replace(second.meta, argv=("python", f"/elsewhere/{script}")))
    assert same_job(identity_of(first), identity_of(other)) == same
    larger = {pid: {"ddp": [{"world_size": 3}]} for pid in second.facts}
    assert not same_job(identity_of(first), identity_of(replace(second, facts=larger)))


def unnamed(own: Recording) -> Recording:
    return replace(own, facts={pid: {"ddp": [{"world_size": 4}]} for pid in own.facts})


def test_a_job_on_the_same_port_an_hour_earlier_is_another_one() -> None:
    first, second = two_nodes(four_ranks())
    before = replace(second, meta=replace(second.meta, started_unix_s=second.meta.started_unix_s - 3600))
    assert not same_job(identity_of(first), identity_of(before))
