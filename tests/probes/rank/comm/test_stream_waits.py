"""The compute stream's waits for collectives are timed in chosen steps, on the rank's own stream."""

from __future__ import annotations

import pytest

from collective_jobs import NCCL, Job, ProcessGroup, Tensor, reduce_on_gpu
from rn50_advisor.probes.rank.ring import PHASE
from rn50_advisor.probes.rank.steps.step_phases import BACKWARD, CLIP, EVALUATION, FORWARD, GAP


@pytest.fixture
def job(monkeypatch):
    return Job(monkeypatch)


@pytest.mark.parametrize(("phase", "place"), [(FORWARD, 0), (BACKWARD, 1), (CLIP, 2), (EVALUATION, None), (GAP, None)])
def test_the_streams_wait_for_a_collective_is_timed_where_the_step_asks_for_it(job, phase, place):
    reduce_on_gpu(job, phase)
    assert job.gpu.begun == 0
    job.gpu.times_waits = True
    reduce_on_gpu(job, phase)
    assert job.gpu.ended == ([] if place is None else [(1, place)])
    assert not job.recorder.errors


def test_without_a_loader_what_follows_the_update_is_the_forward_pass(job):
    job.gpu.times_waits, job.account.fetched = True, {}
    reduce_on_gpu(job, GAP)
    assert job.gpu.ended == [(1, 0)]


def test_only_collectives_that_queue_on_the_gpu_are_timed_there(job):
    job.gpu.times_waits = True
    job.dist.all_reduce(Tensor(1000))
    job.dist.all_reduce(Tensor(1000, "cuda"), group=ProcessGroup(backend="gloo"))
    assert job.gpu.begun == 0
    reduce_on_gpu(job, async_op=True).wait()
    assert job.gpu.begun == 2, "the call, and the wait for it"


def test_a_wait_for_another_streams_collectives_is_timed(job):
    wait = job.recorder.torch.cuda.Event().wait
    wait("compute")
    job.gpu.times_waits = True
    wait("compute")
    assert job.gpu.begun == 0, "no collective was called in this step: this may wait for a copy"
    job.gpu.current = "gathering"
    reduce_on_gpu(job, FORWARD)
    wait("compute")
    wait("gathering")
    assert job.gpu.ended == [(1, 0)] and job.gpu.waits == ["compute", "compute", "compute", "gathering"]
    job.compiling = True
    wait("compute")
    assert job.gpu.begun == 1


def test_the_wait_for_buffers_is_timed_beside_other_collectives(job):
    model = job.ddp(device="cuda")
    job.gpu.times_waits = True
    model._distributed_broadcast_coalesced([1], 1)
    assert job.gpu.ended == [(1, 0)]


def test_an_error_of_the_job_passes_a_timed_wait(job):
    job.gpu.times_waits = True
    job.ring.words[PHASE] = BACKWARD
    with pytest.raises(ValueError, match="no such size"):
        job.dist.all_reduce(Tensor(-1, "cuda"), group=NCCL)
    with pytest.raises(ValueError, match="no such buffers"):
        job.ddp(device="cuda")._distributed_broadcast_coalesced([], 1)
    assert not job.recorder.errors
