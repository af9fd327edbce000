"""Collectives called from Python: what is counted, to which step and phase, and what the header says meanwhile."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from collective_jobs import NCCL, OUTSIDE, Job, ProcessGroup, Tensor, forward
from rn50_advisor.probes.rank.comm import collective_marks
from rn50_advisor.probes.rank.layout import COLLECTIVE_KINDS, COLLECTIVE_OFFSET
from rn50_advisor.probes.rank.ring import PHASE
from rn50_advisor.probes.rank.steps.step_phases import BACKWARD, CLIP, EVALUATION, FORWARD, GAP, START


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


def test_marks_that_were_noted_are_read_before_a_call_is_counted(job):
    job.recorder.buffer.on = True
    job.dist.barrier()
    assert job.read == 1 and not job.recorder.buffer.on
    job.recorder.schedule.stepped = lambda step: setattr(job.recorder.buffer, "on", True)
    job.end_step(1)
    assert not job.recorder.buffer.on, "the next step will have calls too, most likely"


def test_another_thread_that_turns_out_to_train_has_its_steps_recorded_too(job):
    job.dist.barrier()
    job.account = job.recorder.account = SimpleNamespace(thread=threading.get_ident(), ring=job.ring, on_step=None)
    job.dist.barrier()
    assert job.end_step(1)["calls"] == 2


def test_places_are_distinguished_up_to_a_limit(job, monkeypatch):
    monkeypatch.setattr(collective_marks, "SITES_MAX", 2)
    job.dist.all_reduce(Tensor(1))
    job.dist.all_reduce(Tensor(1))
    job.dist.all_reduce(Tensor(1))
    assert len(job.recorder.facts.values["collectives"]) == 2 and job.end_step(1)["calls"] == 3


def test_a_rank_outside_the_group_has_begun_nothing(job):
    job.dist.barrier()
    job.dist.all_reduce(Tensor(8), group=OUTSIDE)
    assert job.header()[:2] == (1, COLLECTIVE_KINDS.index("barrier"))
    assert job.end_step(1)["calls"] == 1 and not job.recorder.errors


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
    monkeypatch.setattr(collective_marks, "SITES_MAX", 1)
    asked = []
    real = collective_marks.described
    monkeypatch.setattr(collective_marks, "described", lambda *about: asked.append(1) or real(*about))
    job.dist.all_reduce(Tensor(1))
    for _ in range(3):
        job.dist.all_reduce(Tensor(1))
    assert len(asked) == 1 and job.end_step(1)["calls"] == 4


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


@pytest.mark.parametrize(("device", "meets"), [("cpu", False), ("cuda", True)])
def test_jobs_whose_ranks_meet_on_gpus_are_known_from_their_last_step(job, device, meets):
    job.dist.all_reduce(Tensor(10, device), group=NCCL)
    job.end_step(1)
    assert job.recorder.collectives.on_gpu is meets


def test_each_line_that_exchanges_metrics_through_a_library_is_a_place_of_its_own(job):
    names = {"reduce": job.dist.all_reduce, "values": Tensor(1)}
    exec(compile("def log():\n    reduce(values)", "/env/site-packages/lightning/fabric/distributed.py", "exec"), names)
    exec(compile("def step():\n    log()\n    log()", "/job/train.py", "exec"), names)
    for _ in range(3):
        names["step"]()
    sites = job.recorder.facts.values["collectives"]
    assert [(site["library"], site["calls"]) for site in sites] == [("lightning", 3), ("lightning", 3)]


def test_a_places_blocking_time_is_kept_by_phase(job):
    for phase in (FORWARD, GAP):
        job.ring.words[PHASE] = phase
        job.dist.all_reduce(Tensor(1))
    (site,) = job.recorder.facts.values["collectives"]
    forward_ns, backward_ns, optimizer_ns, gap_ns, aside_ns = site["held_ns"]
    assert forward_ns > 0 < gap_ns and forward_ns + gap_ns == site["ns"]
    assert backward_ns == optimizer_ns == aside_ns == 0 and not site["in_module"]
