"""Groups are known by identity, and the bytes that their links carry by a ring algorithm."""

from __future__ import annotations

import pytest

from collective_jobs import Job, ProcessGroup, Tensor
from rn50_advisor.probes.rank.comm import process_groups
from rn50_advisor.probes.rank.layout import COLLECTIVE_KINDS


@pytest.fixture
def job(monkeypatch):
    return Job(monkeypatch)


@pytest.mark.parametrize(
    ("kind", "share"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("broadcast", 1.0), ("barrier", 0.75)],
)
def test_each_link_carries_what_a_ring_sends_over_it(kind, share):
    assert process_groups.bus_bytes(COLLECTIVE_KINDS.index(kind), 4000, 4) == 4000 * share
    assert process_groups.bus_bytes(COLLECTIVE_KINDS.index(kind), 4000, 1) == 0


def test_a_group_made_anew_at_the_same_place_is_another(job, monkeypatch):
    monkeypatch.setattr(process_groups, "id", lambda group: 7, raising=False)
    group = ProcessGroup("0", 4, "gloo")
    job.dist.all_reduce(Tensor(1), group=group)
    job.dist.all_reduce(Tensor(1), group=group)
    job.dist.all_reduce(Tensor(1), group=ProcessGroup("0", 2, "nccl"))
    assert (job.header()[0], job.header()[3]) == (1, 2)
    assert [site["backend"] for site in job.recorder.facts.values["collectives"]] == ["gloo", "gloo", "nccl"]
