"""Collectives called from Python: what is counted, to which step and phase, what the header says meanwhile, and what the job sees of it."""

from __future__ import annotations

import _thread
import contextlib
import inspect
import os
import sys
import threading
import types
import weakref
from types import SimpleNamespace

import pytest

from rn50_advisor.probes.rank.comm import collective_marks as module
from rn50_advisor.probes.rank.layout import (
    COLLECTIVE,
    COLLECTIVE_KINDS,
    COLLECTIVE_OFFSET,
    COLLECTIVES_FIELDS,
    KIND_COLLECTIVES,
)
from rn50_advisor.probes.rank.ring import PHASE
from rn50_advisor.probes.rank.steps.step_phases import BACKWARD, CLIP, EVALUATION, FORWARD, GAP, START

TORCH = "torch.distributed.distributed_c10d"
OUTSIDE = object()  # as torch's own for a rank that is no member


class Tensor:
    def __init__(self, count=0, device="cpu"):
        self.count, self.is_cuda, self.device = count, device == "cuda", SimpleNamespace(type=device)

    def numel(self):
        return self.count

    def element_size(self):
        return 4


class ProcessGroup:
    def __init__(self, name="0", size=4, backend="gloo"):
        self.group_name, self.ranks, self.backend = name, size, backend

    def size(self):
        return self.ranks


class Ring:
    def __init__(self):
        self.words = memoryview(bytearray(4096)).cast("q")
        self.words[PHASE] = FORWARD
        self.rows = []

    def write(self, kind, flags, values):
        assert kind == KIND_COLLECTIVES
        self.rows.append(dict(zip(COLLECTIVES_FIELDS, values, strict=True)))


class Gpu:
    """GPU events: what was asked of them. The compute stream is "compute"; `waits`: streams that an event made wait."""

    def __init__(self):
        self.meets, self.current = False, "compute"
        self.begun, self.ended, self.waits = 0, [], []

    def meeting_begins(self, stream=None):
        if (stream or self.current) != "compute":
            return None
        self.begun += 1
        return self.begun

    def meeting_ends(self, before, phase):
        self.ended.append((before, phase))


class Job:
    """A process with a module of collectives, patched; `inside(...)` is what a collective does while it runs."""

    def __init__(self, monkeypatch):
        monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
        self.dist = dist = types.ModuleType(TORCH)
        self.inside = lambda: None

        def all_reduce(tensor, op="sum", group=None, async_op=False):
            """Sum over all ranks."""
            self.inside()
            if tensor.count < 0:
                raise ValueError("no such size")
            return dist.Work() if async_op else None

        def all_gather(tensors, tensor, group=None, async_op=False):
            self.inside()

        def all_gather_object(objects, item, group=None):
            dist.all_gather([Tensor(1)], Tensor(1), group)

        def all_reduce_coalesced(tensors, group=None):
            pass

        def barrier(group=None):
            self.inside()

        class Work:
            def wait(self, timeout=None):
                return True

        class DistributedDataParallel:
            """Torch's, as far as it broadcasts buffers: `sizes` are their numbers of elements."""

            def __init__(self, sizes=(100, 28), device="cpu"):
                self.process_group = dist.GroupMember.WORLD
                self.modules_buffers = [Tensor(size, device) for size in sizes]

            def _distributed_broadcast_coalesced(model, tensors, buffer_size, authoritative_rank=0):  # noqa: N805
                self.inside()
                if not tensors:
                    raise ValueError("no such buffers")

        self.ddp = DistributedDataParallel
        all_reduce_coalesced.__deprecated__ = "use all_reduce"
        for made in (all_reduce, all_gather, all_gather_object, all_reduce_coalesced, barrier, Work):
            made.__module__ = TORCH
            setattr(dist, made.__name__, made)
        dist.ProcessGroup = ProcessGroup
        dist.GroupMember = SimpleNamespace(WORLD=ProcessGroup(), NON_GROUP_MEMBER=OUTSIDE)
        dist.get_backend = lambda group: group.backend
        self.elsewhere = types.ModuleType("torch.distributed.elsewhere")
        self.elsewhere.reduce_all = all_reduce
        monkeypatch.setitem(sys.modules, TORCH, dist)
        monkeypatch.setitem(sys.modules, "torch.distributed.elsewhere", self.elsewhere)
        self.originals = {name: getattr(dist, name) for name in ("all_reduce", "all_reduce_coalesced")}
        self.ring = Ring()
        self.stepped = []
        self.compiling = False
        self.quiet = 0
        self.account = SimpleNamespace(
            thread=threading.get_ident(), ring=self.ring, on_step=None, fetched={0: 1}, self_ns=0
        )
        self.gpu = Gpu()
        self.recorder = SimpleNamespace(
            torch=SimpleNamespace(
                Tensor=Tensor,
                cuda=SimpleNamespace(
                    Event=type("Event", (), {"wait": lambda event, stream=None: self.gpu.waits.append(stream)})
                ),
                distributed=SimpleNamespace(is_available=lambda: True),
                compiler=SimpleNamespace(is_dynamo_compiling=lambda: self.compiling),
                _C=SimpleNamespace(DisableTorchFunction=self.quietly),
                nn=SimpleNamespace(parallel=SimpleNamespace(DistributedDataParallel=DistributedDataParallel)),
            ),
            active=True,
            gpu=self.gpu,
            buffer=SimpleNamespace(on=False, flush_into=lambda account: self.flush_buffer()),
            account=self.account,
            facts=SimpleNamespace(values={}),
            errors=[],
            _stepped=self.stepped.append,
            own_account=self.flush_buffer,
            failed=lambda: self.recorder.errors.append(sys.exc_info()[1]),
        )
        self.read = 0
        self.wrappers = module.install(self.recorder)
        self.recorder.collectives.joins(world_size=1)

    def wrap(self, *sizes, device="cpu", **options):
        """Makes a model with buffers of so many elements."""
        model = self.ddp(sizes, device)
        given = {"file": "train.py", "line": 7, "synced_buffers": len(sizes), "buffer_bytes": 4 * sum(sizes), **options}
        self.recorder.collectives.broadcasts(model, given)
        return model

    @contextlib.contextmanager
    def quietly(self):
        self.quiet += 1
        yield
        self.quiet -= 1

    def flush_buffer(self):
        self.read += 1
        self.recorder.buffer.on = False
        return self.account

    def end_step(self, step):
        """As the account does when the step before `step` is over. Returns its record."""
        before = len(self.ring.rows)
        if self.account.on_step is not None:
            self.account.on_step(step)
        return self.ring.rows[before] if len(self.ring.rows) > before else None

    def header(self):
        return COLLECTIVE.unpack_from(self.ring.words.obj, COLLECTIVE_OFFSET)


@pytest.fixture
def job(monkeypatch):
    return Job(monkeypatch)


def test_a_step_without_calls_writes_nothing_and_meets_nothing(job):
    assert job.end_step(1) is None and job.account.on_step is None


def test_calls_are_summed_over_their_step_and_written_once(job):
    job.dist.all_reduce(Tensor(1000))
    job.dist.all_gather([Tensor(10)] * 4, Tensor(10))
    row = job.end_step(5)
    assert (row["step"], row["calls"], row["bytes"], row["group_size"]) == (4, 2, 4160, 4)
    assert row["bus_bytes"] == 2 * 3 * 4000 // 4 + 3 * 160 // 4
    assert row["call_ns"] > 0 and row["waits"] == 0
    assert job.stepped == [5], "what follows a step's end goes on"
    job.dist.barrier()
    assert job.end_step(6)["calls"] == 1, "the sums begin anew"
    assert not job.recorder.errors


@pytest.mark.parametrize(
    ("phase", "field"),
    [
        (FORWARD, "forward_ns"),
        (BACKWARD, "backward_ns"),
        (CLIP, "optimizer_ns"),
        (GAP, "gap_ns"),
        (EVALUATION, "aside_ns"),
    ],
)
def test_time_that_blocks_the_training_thread_is_counted_by_phase(job, phase, field):
    job.ring.words[PHASE] = phase
    job.dist.all_reduce(Tensor(8))
    row = job.end_step(1)
    held = {name for name in ("forward_ns", "backward_ns", "optimizer_ns", "gap_ns", "aside_ns") if row[name]}
    assert held == {field} and row[field] == row["call_ns"]


def test_a_queued_collective_on_a_gpu_blocks_no_thread(job):
    nccl = ProcessGroup("nccl", 2, "nccl")
    work = job.dist.all_reduce(Tensor(8, "cuda"), group=nccl, async_op=True)
    work.wait()
    row = job.end_step(1)
    assert row["on_device"] == row["calls"] == row["waits"] == 1 and row["forward_ns"] == 0


def test_gloo_holds_the_caller_whatever_the_device(job):
    job.dist.all_reduce(Tensor(8, "cuda"))
    row = job.end_step(1)
    assert row["on_device"] == 0 and row["forward_ns"] > 0


def test_an_asynchronous_call_counts_where_it_is_waited_for(job):
    work = job.dist.all_reduce(Tensor(8), async_op=True)
    job.ring.words[PHASE] = CLIP
    assert work.wait() is True
    row = job.end_step(1)
    assert (row["asynchronous"], row["waits"]) == (1, 1) and row["optimizer_ns"] == row["wait_ns"] > 0


def test_a_call_inside_a_call_is_part_of_it(job):
    job.dist.all_gather_object([None], "name")
    row = job.end_step(1)
    assert row["calls"] == 1


def test_before_the_first_step_nothing_is_counted_but_the_number(job):
    job.ring.words[PHASE] = START
    job.dist.barrier()
    assert job.end_step(0) is None
    job.ring.words[PHASE] = FORWARD
    job.dist.barrier()
    assert job.end_step(1)["calls"] == 1 and job.header()[0] == 2


def test_another_threads_calls_hold_the_one_that_trains_only_in_its_backward(job):
    def call():
        job.dist.all_reduce(Tensor(8))

    for phase in (FORWARD, BACKWARD):
        job.ring.words[PHASE] = phase
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    row = job.end_step(1)
    assert row["calls"] == 2 and row["forward_ns"] == 0 and row["backward_ns"] > 0


def test_the_header_shows_the_current_collective(job):
    seen = []
    group = ProcessGroup("pairs", 2)
    job.inside = lambda: seen.append(job.header())
    job.dist.barrier()
    job.dist.all_reduce(Tensor(8), group=group)
    job.dist.barrier()
    assert [(begun, COLLECTIVE_KINDS[kind], size) for begun, kind, _, size, _ in seen] == [
        (1, "barrier", 4),
        (1, "all_reduce", 2),
        (2, "barrier", 4),
    ]
    assert all(since > 0 for *_, since in seen) and seen[0][2] == seen[2][2] != seen[1][2]
    assert job.header()[:2] == (2, COLLECTIVE_KINDS.index("barrier")) and job.header()[4] == 0


def test_the_line_that_calls_is_kept_and_who_called_for_it(job):
    job.dist.all_reduce(Tensor(1))
    job.dist.all_reduce(Tensor(1))
    (first, second) = job.recorder.facts.values["collectives"]
    assert first["file"] == __file__ and second["line"] == first["line"] + 1
    assert (first["library"], first["kind"], first["backend"], first["calls"]) == ("", "all_reduce", "gloo", 1)


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/job/train.py", ""),
        ("/job/train_syncbn.py", ""),
        ("/home/me/torch/fsdp/train.py", ""),
        ("/job/syncbn.py", ""),
        ("/env/lib/python3.11/site-packages/torch/nn/modules/_functions.py", "SyncBatchNorm"),
        ("/env/lib/python3.11/site-packages/torch/distributed/fsdp/_runtime_utils.py", "FSDP"),
        ("/env/lib/python3.11/site-packages/torch/distributed/optim/zero_redundancy_optimizer.py", "ZeRO"),
        ("/env/lib/python3.11/site-packages/deepspeed/comm/torch.py", "DeepSpeed"),
        ("/env/lib/python3.11/site-packages/torchmetrics/utilities/distributed.py", "torchmetrics"),
    ],
)
def test_the_file_shows_the_library_that_calls_for_the_job(job, file, library):
    names = {"call": job.dist.all_reduce, "values": Tensor(1)}
    exec(compile("call(values)", file, "exec"), names)
    assert job.recorder.facts.values["collectives"][0]["library"] == library


def test_a_batch_norm_that_synchronises_is_known_by_its_class(job):
    class MySyncBatchNorm:
        def forward(self):
            job.dist.all_reduce(Tensor(16))

    MySyncBatchNorm().forward()
    job.dist.all_reduce(Tensor(1))
    row = job.end_step(1)
    assert (row["norm_calls"], row["norm_bytes"], row["calls"]) == (1, 64, 2) and row["norm_ns"] > 0


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
        real = module.install

        def install(recorder):
            functional.traceable_collective_remaps[self.dist.all_reduce] = "functional"
            return real(recorder)

        patch.setattr(module, "install", install)
        make(self, patch)

    monkeypatch.setattr(Job, "__init__", with_table)
    job = Job(monkeypatch)
    assert functional.traceable_collective_remaps[job.dist.all_reduce] == "functional"
    job.compiling = True
    job.dist.all_reduce(Tensor(1))
    assert job.end_step(1) is None


def test_marks_that_were_noted_are_read_before_a_call_is_counted(job):
    job.recorder.buffer.on = True
    job.dist.barrier()
    assert job.read == 1 and not job.recorder.buffer.on
    job.recorder._stepped = lambda step: setattr(job.recorder.buffer, "on", True)
    job.end_step(1)
    assert not job.recorder.buffer.on, "the next step will have calls too, most likely"


def test_an_error_in_the_recorder_does_not_reach_the_job(job):
    job.dist.GroupMember = None
    assert job.dist.all_reduce(Tensor(1)) is None
    assert job.recorder.errors and job.end_step(1) is None
    job.recorder.active = False
    job.dist.all_reduce(Tensor(1))
    assert len(job.recorder.errors) == 1


def test_another_thread_that_turns_out_to_train_has_its_steps_recorded_too(job):
    job.dist.barrier()
    job.account = job.recorder.account = SimpleNamespace(thread=threading.get_ident(), ring=job.ring, on_step=None)
    job.dist.barrier()
    assert job.end_step(1)["calls"] == 2


def test_a_torch_without_what_is_needed_is_noted_and_left_alone(monkeypatch):
    noted: list[str] = []
    broken = SimpleNamespace(torch=SimpleNamespace(), facts=SimpleNamespace(miss=noted.append))
    monkeypatch.setitem(sys.modules, TORCH, types.ModuleType(TORCH))
    assert module.install(broken) == []
    assert len(noted) == 1


def test_places_are_distinguished_up_to_a_limit(job, monkeypatch):
    monkeypatch.setattr(module, "SITES_MAX", 2)
    job.dist.all_reduce(Tensor(1))
    job.dist.all_reduce(Tensor(1))
    job.dist.all_reduce(Tensor(1))
    assert len(job.recorder.facts.values["collectives"]) == 2 and job.end_step(1)["calls"] == 3


@pytest.mark.parametrize(
    ("kind", "share"),
    [("all_reduce", 1.5), ("all_gather", 0.75), ("reduce_scatter", 0.75), ("broadcast", 1.0), ("barrier", 0.75)],
)
def test_each_link_carries_what_a_ring_sends_over_it(kind, share):
    assert module.bus_bytes(COLLECTIVE_KINDS.index(kind), 4000, 4) == 4000 * share
    assert module.bus_bytes(COLLECTIVE_KINDS.index(kind), 4000, 1) == 0


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


def test_a_rank_outside_the_group_has_begun_nothing(job):
    job.dist.barrier()
    job.dist.all_reduce(Tensor(8), group=OUTSIDE)
    assert job.header()[:2] == (1, COLLECTIVE_KINDS.index("barrier"))
    assert job.end_step(1)["calls"] == 1 and not job.recorder.errors


def test_a_group_made_anew_at_the_same_place_is_another(job, monkeypatch):
    monkeypatch.setattr(module, "id", lambda group: 7, raising=False)
    group = ProcessGroup("0", 4, "gloo")
    job.dist.all_reduce(Tensor(1), group=group)
    job.dist.all_reduce(Tensor(1), group=group)
    job.dist.all_reduce(Tensor(1), group=ProcessGroup("0", 2, "nccl"))
    assert (job.header()[0], job.header()[3]) == (1, 2)
    assert [site["backend"] for site in job.recorder.facts.values["collectives"]] == ["gloo", "gloo", "nccl"]


def test_a_tensor_of_the_jobs_own_kind_is_weighed_without_asking_it(job):
    asked = []

    class Own(Tensor):
        def numel(self):
            asked.append(job.quiet)
            return 4

    job.dist.all_reduce(Own())
    assert asked == [1] and job.quiet == 0 and job.end_step(1)["bytes"] == 16


def test_sizes_that_are_symbols_are_not_settled(job):
    class Symbol:
        def __mul__(self, other):
            return self

        def __gt__(self, other):
            raise AssertionError("it was compared")

        __lt__ = __bool__ = __gt__

    job.dist.all_gather(Tensor(Symbol()), Tensor(0))
    assert not job.recorder.errors and job.end_step(1)["bytes"] == 0


def test_beyond_the_limit_no_caller_is_searched(job, monkeypatch):
    monkeypatch.setattr(module, "SITES_MAX", 1)
    asked = []
    real = module.described
    monkeypatch.setattr(module, "described", lambda *about: asked.append(1) or real(*about))
    job.dist.all_reduce(Tensor(1))
    for _ in range(3):
        job.dist.all_reduce(Tensor(1))
    assert len(asked) == 1 and job.end_step(1)["calls"] == 4


@pytest.mark.parametrize("call", [lambda job: job.dist.all_reduce(Tensor(1)), lambda job: job.dist.Work().wait()])
def test_a_thread_interrupted_at_the_start_of_a_call_is_not_inside_it(job, monkeypatch, call):
    clock = iter([KeyboardInterrupt])

    def interrupted():
        for error in clock:
            raise error
        return 1

    monkeypatch.setattr(module, "perf_counter_ns", interrupted)
    with pytest.raises(KeyboardInterrupt):
        call(job)
    job.dist.all_reduce(Tensor(1))
    assert job.header()[4] == 0 and job.end_step(1)["calls"] == 1


def forward(model):
    model._distributed_broadcast_coalesced(model.modules_buffers, 1 << 20)


def test_broadcasts_of_buffers_hold_the_forward_pass_and_are_no_calls_of_the_jobs(job):
    model = job.wrap(100, 28)
    for _ in range(3):
        forward(model)
    job.account.on_step(5)
    (row,) = job.ring.rows
    assert row["forward_ns"] > 0
    assert [row[name] for name in ("calls", "bytes", "call_ns", "waits", "aside_ns")] == [0, 0, 0, 0, 0]
    (site,) = job.recorder.facts.values["collectives"]
    assert [site[name] for name in ("file", "line", "library", "kind")] == [
        *("train.py", 7, "DistributedDataParallel", "broadcast"),
    ]
    assert (site["calls"], site["bytes"], site["group_size"]) == (3, 3 * 512, 4) and site["ns"] == row["forward_ns"]
    assert not job.recorder.errors


def test_the_header_shows_the_broadcast_of_buffers_in_which_a_rank_is(job):
    seen = []
    job.inside = lambda: seen.append(list(job.ring.words[COLLECTIVE_OFFSET // 8 : COLLECTIVE_OFFSET // 8 + 2]))
    forward(job.wrap(100))
    assert seen == [[1, COLLECTIVE_KINDS.index("broadcast")]]


@pytest.mark.parametrize(
    ("sizes", "device", "options"), [((), "cpu", {}), ((8,), "cuda", {}), ((8,), "cpu", {"synced_buffers": 0})]
)
def test_no_broadcast_or_one_that_only_queues_work_costs_nothing(job, sizes, device, options):
    model = job.wrap(*sizes, device=device, **options)
    model.modules_buffers = [Tensor(1)]
    forward(model)
    assert job.account.on_step is None and job.recorder.facts.values["collectives"] == []


def test_a_model_that_is_not_known_and_one_that_is_gone_are_not_timed(job):
    known, other = job.wrap(8), job.ddp()
    forward(other)
    assert job.account.on_step is None and not job.recorder.errors
    del known
    assert not job.recorder.collectives.buffers


def test_an_exception_in_a_broadcast_of_buffers_is_the_jobs(job):
    model = job.wrap(8)
    with pytest.raises(ValueError, match="no such buffers") as caught:
        model._distributed_broadcast_coalesced([], 1)
    assert all(str(entry.path) != module.__file__ for entry in caught.traceback)
    assert not job.recorder.collectives.inside


def test_an_error_at_a_broadcast_of_buffers_does_not_reach_the_job(job, monkeypatch):
    model = job.wrap(8)
    monkeypatch.setattr(job.recorder.collectives, "_begun", lambda call: 1 / 0)
    forward(model)
    assert len(job.recorder.errors) == 1 and not job.recorder.collectives.inside


@pytest.mark.parametrize(
    ("phase", "field"), [(CLIP, "forward_ns"), (GAP, "forward_ns"), (FORWARD, "forward_ns"), (EVALUATION, "aside_ns")]
)
def test_buffers_are_sent_in_forward_passes_or_evaluations(job, phase, field):
    """Only the backward pass shows that the chunk before it was a forward pass, in a loop without a loader."""
    model = job.wrap(8)
    job.ring.words[PHASE] = phase
    forward(model)
    job.account.on_step(5)
    assert [name for name in ("forward_ns", "gap_ns", "aside_ns") if job.ring.rows[0][name]] == [field]


NCCL = ProcessGroup(backend="nccl")


def reduce_on_gpu(job, phase=BACKWARD, group=NCCL, **options):
    job.ring.words[PHASE] = phase
    return job.dist.all_reduce(Tensor(1000, "cuda"), group=group, **options)


@pytest.mark.parametrize(("phase", "place"), [(FORWARD, 0), (BACKWARD, 1), (CLIP, 2), (EVALUATION, None), (GAP, None)])
def test_the_streams_wait_for_a_collective_is_timed_where_the_step_asks_for_it(job, phase, place):
    reduce_on_gpu(job, phase)
    assert job.gpu.begun == 0
    job.gpu.meets = True
    reduce_on_gpu(job, phase)
    assert job.gpu.ended == ([] if place is None else [(1, place)])
    assert not job.recorder.errors


def test_without_a_loader_what_follows_the_update_is_the_forward_pass(job):
    job.gpu.meets, job.account.fetched = True, {}
    reduce_on_gpu(job, GAP)
    assert job.gpu.ended == [(1, 0)]


def test_only_collectives_that_queue_on_the_gpu_are_timed_there(job):
    job.gpu.meets = True
    job.dist.all_reduce(Tensor(1000))
    job.dist.all_reduce(Tensor(1000, "cuda"), group=ProcessGroup(backend="gloo"))
    assert job.gpu.begun == 0
    reduce_on_gpu(job, async_op=True).wait()
    assert job.gpu.begun == 2, "the call, and the wait for it"


def test_a_wait_for_another_streams_collectives_is_timed(job):
    wait = job.recorder.torch.cuda.Event().wait
    wait("compute")
    job.gpu.meets = True
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
    job.gpu.meets = True
    model._distributed_broadcast_coalesced([1], 1)
    assert job.gpu.ended == [(1, 0)]


def test_an_error_of_the_job_passes_a_timed_wait(job):
    job.gpu.meets = True
    job.ring.words[PHASE] = BACKWARD
    with pytest.raises(ValueError, match="no such size"):
        job.dist.all_reduce(Tensor(-1, "cuda"), group=NCCL)
    with pytest.raises(ValueError, match="no such buffers"):
        job.ddp(device="cuda")._distributed_broadcast_coalesced([], 1)
    assert not job.recorder.errors


@pytest.mark.parametrize(("device", "meets"), [("cpu", False), ("cuda", True)])
def test_jobs_whose_ranks_meet_on_gpus_are_known_from_their_last_step(job, device, meets):
    job.dist.all_reduce(Tensor(10, device), group=NCCL)
    job.end_step(1)
    assert job.recorder.collectives.meets is meets
