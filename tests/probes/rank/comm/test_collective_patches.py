"""The job sees torch's collectives behind the wrappers: names, signatures, exceptions; errors of the recorder stay in it."""

from __future__ import annotations

import _thread
import inspect
import sys
import threading
import types
import weakref
from types import SimpleNamespace

import pytest

from collective_jobs import TORCH, Job, Tensor, forward
from rn50_advisor.probes.rank.comm import collective_marks, collective_patches


@pytest.fixture
def job(monkeypatch):
    return Job(monkeypatch)


def test_an_exception_is_the_jobs_and_shows_its_own_frames(job):
    with pytest.raises(ValueError, match="no such size") as raised:
        job.dist.all_reduce(Tensor(-1))
    names = [frame.name for frame in raised.traceback]
    assert names == [names[0], "all_reduce"]
    assert job.header()[4] == 0
    job.dist.all_reduce(Tensor(1))
    assert job.end_step(1)["calls"] == 2


def test_names_signatures_and_texts_are_those_of_torch(job):
    wrapper, original = job.dist.all_reduce, job.originals["all_reduce"]
    assert wrapper is not original and job.elsewhere.reduce_all is wrapper
    assert inspect.signature(wrapper) == inspect.signature(original) and wrapper.__doc__ == "Sum over all ranks."
    assert (wrapper.__name__, wrapper.__module__) == ("all_reduce", TORCH)
    assert job.dist.Work.wait.__name__ == "wait"
    assert next(iter(inspect.signature(job.dist.Work.wait).parameters)) == "self"


def test_a_function_that_warns_of_its_age_is_left_alone(job):
    assert job.dist.all_reduce_coalesced is job.originals["all_reduce_coalesced"]


def test_dynamo_meets_the_original_and_finds_the_wrapper_in_its_table(monkeypatch):
    functional = types.ModuleType("torch.distributed._functional_collectives")
    monkeypatch.setitem(sys.modules, functional.__name__, functional)
    functional.traceable_collective_remaps = {}
    make = Job.__init__

    def with_table(self, patch):
        real = collective_patches.install

        def install(recorder):
            functional.traceable_collective_remaps[self.dist.all_reduce] = "functional"
            return real(recorder)

        patch.setattr(collective_patches, "install", install)
        make(self, patch)

    monkeypatch.setattr(Job, "__init__", with_table)
    job = Job(monkeypatch)
    assert functional.traceable_collective_remaps[job.dist.all_reduce] == "functional"
    job.compiling = True
    job.dist.all_reduce(Tensor(1))
    assert job.end_step(1) is None


def test_an_error_in_the_recorder_does_not_reach_the_job(job):
    job.dist.GroupMember = None
    assert job.dist.all_reduce(Tensor(1)) is None
    assert job.recorder.errors and job.end_step(1) is None
    job.recorder.active = False
    job.dist.all_reduce(Tensor(1))
    assert len(job.recorder.errors) == 1


def test_a_torch_without_what_is_needed_is_noted_and_left_alone(monkeypatch):
    noted: list[str] = []
    broken = SimpleNamespace(torch=SimpleNamespace(), facts=SimpleNamespace(miss=noted.append))
    monkeypatch.setitem(sys.modules, TORCH, types.ModuleType(TORCH))
    assert collective_patches.install(broken) == []
    assert len(noted) == 1


def test_a_call_with_no_frame_below_it_is_a_call_like_any_other(job):
    # as where autograd's own thread calls it for a gradient, without a hook of Python's around it
    done = threading.Event()
    job.inside = done.set
    _thread.start_new_thread(job.dist.all_reduce, (Tensor(1),))
    assert done.wait(30) and not job.recorder.errors


def test_what_the_callers_frame_holds_is_not_kept_alive(job):
    held = Tensor(4)
    gone = weakref.ref(held)
    job.dist.all_reduce(held)
    del held
    assert gone() is None


@pytest.mark.parametrize("call", [lambda job: job.dist.all_reduce(Tensor(1)), lambda job: job.dist.Work().wait()])
def test_a_thread_interrupted_at_the_start_of_a_call_is_not_inside_it(job, monkeypatch, call):
    clock = iter([KeyboardInterrupt])

    def interrupted():
        for error in clock:
            raise error
        return 1

    monkeypatch.setattr(collective_marks, "perf_counter_ns", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(job)
    job.dist.all_reduce(Tensor(1))
    assert job.header()[4] == 0 and job.end_step(1)["calls"] == 1


def test_an_exception_in_a_broadcast_of_buffers_is_the_jobs(job):
    model = job.wrap(8)
    with pytest.raises(ValueError, match="no such buffers") as caught:
        model._distributed_broadcast_coalesced([], 1)
    assert all(str(entry.path) != collective_patches.__file__ for entry in caught.traceback)
    assert not job.recorder.collectives.inside


def test_an_error_at_a_broadcast_of_buffers_does_not_reach_the_job(job, monkeypatch):
    model = job.wrap(8)
    monkeypatch.setattr(job.recorder.collectives, "_begun", lambda call: 1 / 0)
    forward(model)
    assert len(job.recorder.errors) == 1 and not job.recorder.collectives.inside
