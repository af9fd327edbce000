"""Reading DDP's stamps: each stamped iteration once, and never again where they cannot be had."""

from __future__ import annotations

import gc
import os
from itertools import pairwise
from types import SimpleNamespace

import pytest

from rn50_advisor.probes.rank.comm.ddp_stamps import DdpStamps
from rn50_advisor.probes.rank.layout import COMM_FIELDS, KIND_COMM

MS = 1_000_000


class Model:
    """DistributedDataParallel's logger interface: iteration `n` is stamped when it is a multiple of the rate."""

    def __init__(self, searches=False, unused=(), devices=("cpu",)):
        self.iteration, self.rate, self.stamped = 0, 100, 0
        self.set_rates, self.devices = [], devices
        self.searches, self.unused = searches, unused
        self.logger = SimpleNamespace(_get_ddp_logging_data=lambda: SimpleNamespace(ints_map=self._data()))

    def parameters(self):
        return [SimpleNamespace(numel=lambda: 10, device=SimpleNamespace(type=kind)) for kind in self.devices]

    def _get_ddp_logging_data(self):
        rebuilt = {"rebuilt_bucket_sizes": "300, 60"} if self.iteration > 1 else {}
        options = {"bucket_sizes": "360", **rebuilt, "comm_hook": "bf16_compress_hook" if self.iteration > 5 else ""}
        return {"backend_name": "gloo", "find_unused_parameters": int(self.searches), **options, **self._data()}

    def _set_ddp_runtime_logging_sample_rate(self, rate):
        self.rate = rate
        self.set_rates.append(rate)

    def train(self):
        self.iteration += 1
        if self.iteration <= 10 or self.iteration % self.rate == 0:
            self.stamped = self.iteration

    def _data(self):
        start = self.stamped * 100 * MS
        return {
            "iteration": self.iteration,
            "unused_parameter_size": 80 if self.iteration in self.unused else 0,
            "backward_comm_time": 5 * MS,
            "backward_compute_time_start": start,
            "backward_compute_time_end": start + 20 * MS,
            "backward_comm_time_start": start + 10 * MS,
            "backward_comm_time_end": start + 25 * MS,
        }


class Paper:
    def __init__(self):
        self.rows = []

    def write(self, kind, flags, values):
        assert kind == KIND_COMM
        self.rows.append(dict(zip(COMM_FIELDS, values, strict=True)))


def read(steps, step_ms, model=None, on_cuda=False):
    model, stamps, paper = model or Model(), DdpStamps(), Paper()
    model.options = stamps.register(model)
    for step in range(steps):
        model.train()
        stamps.read(paper, step, step_ms * MS, on_cuda)
    return model, paper.rows


def test_long_steps_are_read_each_and_once():
    model, rows = read(40, 60)
    assert model.rate == 1
    assert [row["step"] for row in rows] == [
        *range(10),
        *range(11, 40),
    ]  # at DDP's own rate the eleventh is not stamped
    assert len({row["backward_start_ns"] for row in rows}) == 39


def test_stamps_may_be_read_at_the_end_of_the_step_in_whose_forward_they_were_made():
    """A forward publishes the previous iteration's data until the next forward: until the end of its step."""
    model, stamps, paper = Model(), DdpStamps(), Paper()
    stamps.register(model)
    begun = 0
    while begun < 40:
        steps = stamps.steps_to_read(begun)
        assert steps >= 1
        for _ in range(steps):
            model.train()
        begun += steps
        if begun >= 2:
            stamps.read(paper, begun - 2, 60 * MS, False)
    read = [row["step"] for row in paper.rows]
    assert (
        set(range(read[-1] + 1)) - set(read) <= {9, 10} and len(read) == len(set(read)) > 28
    )  # before the rate was set


@pytest.mark.parametrize(("step_ms", "rate"), [(10, 8), (9, 8), (1, 64)])
def test_short_steps_are_read_every_fifty_to_hundred_milliseconds_in_the_same_steps_of_all_ranks(step_ms, rate):
    model, rows = read(400, step_ms)
    assert model.rate == rate
    later = [row["step"] for row in rows if row["step"] >= 20]
    assert later and all(b - a == rate for a, b in pairwise(later))
    assert all((step + 1) % rate == 0 for step in later)  # iterations are counted from one


def test_buckets_and_hooks_are_read_again_once_training_runs():
    assert DdpStamps().register(Model())["bucket_bytes"] == [360]
    model, _ = read(40, 60)
    assert model.options["bucket_bytes"] == [300, 60] and model.options["comm_hook"] == "bf16_compress_hook"


def test_the_device_of_the_parameters_is_described():
    assert DdpStamps().register(Model(devices=(None,)))["device"] is None
    assert DdpStamps().register(Model(devices=("cuda",)))["device"] == "cuda"


@pytest.mark.parametrize("step_ms", [1, 10, 60])
@pytest.mark.parametrize(
    ("devices", "on_cuda"),
    [
        (("cuda",), True),
        (("cuda",), False),
        (("cpu", "cuda"), False),
        (("cpu",), True),
        (("xpu",), False),
        (("meta",), False),
        ((None,), False),
        ((), False),
    ],
)
def test_the_rate_is_left_alone_wherever_a_stamp_may_synchronise_a_device(devices, on_cuda, step_ms):
    model, rows = read(450, step_ms, Model(devices=devices), on_cuda)
    assert model.set_rates == []
    assert [row["step"] + 1 for row in rows] == [
        *range(1, 11),
        100,
        200,
        300,
        400,
    ]  # what DDP stamps by itself, each once


def test_on_a_gpu_stamps_are_read_right_after_they_are_made_however_many_iterations_a_step_has():
    model, stamps, paper = Model(devices=("cuda",)), DdpStamps(), Paper()
    stamps.register(model)
    for step in range(450):
        for _ in range(2):
            model.train()
        stamps.read(paper, step, 10 * MS, True)
    late = [row["step"] for row in paper.rows if row["step"] >= 10]
    assert late == [*range(49, 450, 50)]  # of iterations 100, 200, 300 ...


def test_between_the_stamps_of_a_gpu_many_steps_may_be_buffered():
    model, stamps, paper = Model(devices=("cuda",)), DdpStamps(), Paper()
    stamps.register(model)
    for step in range(100):
        model.train()
        stamps.read(paper, step, 10 * MS, True)
    assert stamps.steps_to_read(100) > 90


def test_the_line_that_wraps_the_model_is_kept():
    options = DdpStamps().register(Model())
    assert options["file"] == __file__ and options["line"] > 0


@pytest.mark.parametrize(("unused", "found"), [((), 0), ((7, 30), 2)])
def test_searches_are_counted_where_they_are_read_anyway(unused, found):
    model, rows = read(40, 60, Model(searches=True, unused=unused))
    assert model.options["searched_iterations"] == len(rows) == 39
    assert model.options["iterations_with_unused"] == found


def test_without_a_search_no_iteration_is_counted():
    model, _ = read(40, 60, Model(unused=(7,)))
    assert "searched_iterations" not in model.options


def test_the_larger_of_two_models_speaks_for_the_rank():
    stamps, small, large = DdpStamps(), Model(), Model()
    large.parameters = lambda: [SimpleNamespace(numel=lambda: 1000)]
    large.train()
    for model in (large, small):
        stamps.register(model)
    paper = Paper()
    stamps.read(paper, 0, 60 * MS, False)
    assert paper.rows[0]["backward_start_ns"] == 100 * MS


def test_a_wrapper_without_stamps_costs_its_phases_nothing(tmp_path, monkeypatch):
    torch = pytest.importorskip("torch")
    from rn50_advisor.probes.rank.recorder import Recorder

    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    recorder = Recorder(torch, str(tmp_path))
    recorder.stamps.any = True
    recorder.stamps.read = lambda *_: (_ for _ in ()).throw(AttributeError("no logger"))
    account = recorder.own_account()
    account.backwards = 1
    account.ring = SimpleNamespace(phase=lambda *_: None, write=lambda *_: None, cost=lambda *_: None)
    assert recorder.passes.backward_begin() is account
    assert not recorder.stamps.any and recorder.errors == 0 and recorder.active


@pytest.mark.parametrize("fed", [True, False])
@pytest.mark.parametrize("passes", [1, 4])
def test_the_rate_is_that_of_whole_backward_passes_also_in_a_loop_without_a_loader(tmp_path, monkeypatch, fed, passes):
    """Not of the forward alone, which is all that a new step has seen at its first backward pass."""
    torch = pytest.importorskip("torch")
    from rn50_advisor.probes.rank.recorder import Recorder

    monkeypatch.setattr(os, "register_at_fork", lambda **_: None)
    recorder = Recorder(torch, str(tmp_path))
    recorder.stamps.any = True
    asked = []
    recorder.stamps.read = lambda ring, step, pass_ns, on_cuda: asked.append(pass_ns)
    account = recorder.own_account()
    account.ring = SimpleNamespace(phase=lambda *_: None, write=lambda *_: None, cost=lambda *_: None)
    account.step, account.backwards, account.last_step_ns = 20, 20 * passes, 12 * MS
    account.backward_seen = not fed  # the second pass of a step, or the first
    recorder.passes.backward_begin()
    assert asked == [12 * MS // passes]


def test_a_model_that_is_gone_holds_up_nothing_and_the_next_one_is_read_from_its_start():
    stamps, paper, model = DdpStamps(), Paper(), Model()
    stamps.register(model)
    for step in range(40):
        model.train()
        stamps.read(paper, step, 10 * MS, False)
    del model
    gc.collect()
    stamps.read(paper, 40, 10 * MS, False)
    assert stamps.steps_to_read(41) > 1000
    after = Model()
    stamps.register(after)
    for step in range(41, 81):
        after.train()
        stamps.read(paper, step, 10 * MS, False)
    assert after.rate == 8 and paper.rows[-1]["step"] > 70


def test_a_model_without_logging_data_is_not_read():
    stamps = DdpStamps()
    with pytest.raises(AttributeError):
        stamps.register(SimpleNamespace())
    assert stamps.steps_to_read(5) > 1000


def test_the_buffers_that_are_sent_are_weighed_and_those_of_batch_norm_apart():
    def buffer(count, size):
        return SimpleNamespace(numel=lambda: count, element_size=lambda: size)

    model = Model()
    model.named_module_buffers = {
        "mask": buffer(100, 4),
        "norm.running_mean": buffer(8, 4),
        "norm.num_batches_tracked": buffer(1, 8),
    }
    plain = DdpStamps().register(model)
    assert (plain["synced_buffers"], plain["buffer_bytes"]) == (0, 0), "DDP does not broadcast them"
    told = model._get_ddp_logging_data
    model._get_ddp_logging_data = lambda: {**told(), "broadcast_buffers": 1}
    assert plain["has_forward_sync"] is False
    model.forward_sync_buffers = True
    options = DdpStamps().register(model)
    assert options["has_forward_sync"] is True
    assert [options[name] for name in ("synced_buffers", "buffer_bytes", "norm_buffers", "norm_buffer_bytes")] == [
        *(3, 440, 2, 40),
    ]
