"""A process of a job whose module of collectives is patched. Not a test."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import types
from types import SimpleNamespace

from rn50_advisor.probes.rank.comm import collective_patches
from rn50_advisor.probes.rank.layout import (
    COLLECTIVE,
    COLLECTIVE_OFFSET,
    COLLECTIVES_FIELDS,
    KIND_COLLECTIVES,
)
from rn50_advisor.probes.rank.ring import PHASE
from rn50_advisor.probes.rank.steps.step_phases import BACKWARD, FORWARD

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
        self.times_waits, self.current = False, "compute"
        self.begun, self.ended, self.waits = 0, [], []

    def wait_begins(self, stream=None):
        if (stream or self.current) != "compute":
            return None
        self.begun += 1
        return self.begun

    def wait_ends(self, before, phase):
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
            schedule=SimpleNamespace(stepped=self.stepped.append),
            own_account=self.flush_buffer,
            failed=lambda: self.recorder.errors.append(sys.exc_info()[1]),
        )
        self.read = 0
        self.wrappers = collective_patches.install(self.recorder)
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


def forward(model):
    model._distributed_broadcast_coalesced(model.modules_buffers, 1 << 20)


NCCL = ProcessGroup(backend="nccl")


def reduce_on_gpu(job, phase=BACKWARD, group=NCCL, **options):
    job.ring.words[PHASE] = phase
    return job.dist.all_reduce(Tensor(1000, "cuda"), group=group, **options)
