"""GPU times by events, on a double of `torch.cuda`: a stream with a clock of its own that runs behind the host."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from rn50_advisor.probes.rank.facts.process_facts import cuda_index
from rn50_advisor.probes.rank.gpu import gpu_events
from rn50_advisor.probes.rank.gpu.gpu_events import GpuTimes
from rn50_advisor.probes.rank.gpu.graph_captures import Captures
from rn50_advisor.probes.rank.layout import GPU_STEP_FIELDS, KIND_GPU_STEP
from rn50_advisor.probes.rank.recorder import Recorder

MS = 1_000_000


DEVICE = 3  # not the current one


class Stream:
    """A stream that runs its queue in order; the host decides how far it has come."""

    def __init__(self):
        self.queued_ms = 0.0  # when the last thing queued will be done, on the stream's clock
        self.host_ms = 0.0
        self.done_ms = 0.0
        self.capturing = False
        self.made = 0
        self.current = "training"
        self.keeps_no_statistics = False

    def work(self, ms):
        self.queued_ms = max(self.queued_ms, self.host_ms) + ms

    def host(self, ms):
        self.host_ms += ms

    # -- what torch.cuda offers
    def is_current_stream_capturing(self):
        return self.capturing

    def Event(self, enable_timing):
        assert enable_timing
        self.made += 1
        return Event(self)

    def current_stream(self, device):
        assert device == DEVICE, "on another one an event would make a context"
        return self.current

    def memory_stats(self, device):
        assert device == DEVICE
        if self.keeps_no_statistics:
            raise RuntimeError("cudaMallocAsync does not yet support getDeviceStats")
        return {
            "allocated_bytes.all.current": 5,
            "reserved_bytes.all.current": 7,
            "allocated_bytes.all.peak": 6,
            "num_alloc_retries": 1,
        }


class Event:
    def __init__(self, stream):
        self.stream = stream

    def record(self, stream):
        assert stream == "training"
        self.at_ms = max(self.stream.queued_ms, self.stream.host_ms)

    def query(self):
        return self.at_ms <= self.stream.done_ms

    def elapsed_time(self, later):
        assert later.query(), "never asked before it has passed"
        return later.at_ms - self.at_ms


class Paper:
    def __init__(self):
        self.steps = []

    def write(self, kind, flags, values):
        assert kind == KIND_GPU_STEP
        self.steps.append(dict(zip(GPU_STEP_FIELDS, values, strict=True)))


@pytest.fixture
def stream():
    return Stream()


def step(stream, times, paper, number, *, input_ms):
    """The host fetches for so long, then queues 10 ms of forward, 20 of backward and 2 of optimizer at once."""
    times.mark("gap")
    stream.host(input_ms)
    times.mark("input_wait")
    for ms, phase in ((10, "forward"), (20, "backward"), (2, "optimizer")):
        stream.work(ms)
        times.mark(phase)
    times.close(number, paper)


def run(stream, *, input_ms, steps=4):
    times, paper = GpuTimes(stream, DEVICE, clock=lambda: int(stream.host_ms * MS) + 10**12), Paper()
    for number in range(steps):
        stream.done_ms = stream.queued_ms  # the stream has caught up with the step before
        step(stream, times, paper, number, input_ms=input_ms)
        stream.host(1)
    stream.done_ms = stream.queued_ms
    times.close(steps, paper)
    return paper, times


def test_input_that_queued_kernels_hide_costs_nothing(stream):
    paper, _ = run(stream, input_ms=25)  # the stream still computes for 31 ms when the host asks for its batch
    assert paper.steps[-1]["input_wait_ns"] == 0
    assert paper.steps[-1]["forward_ns"] == 10 * MS and paper.steps[-1]["backward_ns"] == 20 * MS


def test_a_stream_that_ran_dry_is_idle_for_input(stream):
    paper, _ = run(stream, input_ms=50)
    # the stream runs dry 31 ms after the host asks, and is idle for the other 19
    assert paper.steps[-1]["input_wait_ns"] == pytest.approx(19 * MS, abs=1)
    assert paper.steps[-1]["optimizer_ns"] == 2 * MS


def test_events_are_read_only_after_they_have_passed_and_used_again(stream):
    times, paper = GpuTimes(stream, DEVICE), Paper()
    for number in range(3):
        step(stream, times, paper, number, input_ms=1)
    assert paper.steps == []  # nothing has passed yet, nothing was asked
    stream.done_ms = stream.queued_ms
    for number in range(3, 20):
        step(stream, times, paper, number, input_ms=1)
        stream.done_ms = stream.queued_ms
    assert [row["step"] for row in paper.steps] == list(range(1, 19))
    assert stream.made < 30


def test_a_stream_that_never_catches_up_costs_steps_not_memory(stream):
    times, paper = GpuTimes(stream, DEVICE), Paper()
    for number in range(200):
        step(stream, times, paper, number, input_ms=1)
    assert times.dropped > 100 and paper.steps == []


def test_a_step_that_never_ends_holds_a_limited_number_of_events(stream):
    """Backward passes that no optimizer step follows: adversarial ones, saliency, updates by hand."""
    times, paper = GpuTimes(stream, DEVICE), Paper()
    for number in range(2):
        step(stream, times, paper, number, input_ms=1)
    for _ in range(20_000):
        times.mark("forward")
        times.mark("backward")
    assert stream.made < gpu_events._MARKS_MAX + 20 and len(times._marks) <= gpu_events._MARKS_MAX
    times.close(2, paper)
    for number in range(3, 6):
        step(stream, times, paper, number, input_ms=1)
        stream.done_ms = stream.queued_ms
    times.close(6, paper)
    assert [row["step"] for row in paper.steps] == [1, 3, 4, 5] and times.dropped == 1


def test_a_step_whose_events_cannot_be_read_is_left_out(stream, monkeypatch):
    """The job computed a part of it on another stream, which has not come so far."""
    times, paper = GpuTimes(stream, DEVICE), Paper()
    read = Event.elapsed_time
    for number in range(6):
        step(stream, times, paper, number, input_ms=1)
        stream.done_ms = stream.queued_ms
        monkeypatch.setattr(Event, "elapsed_time", fails if number == 2 else read)
    times.close(6, paper)
    assert [row["step"] for row in paper.steps] == [1, 3, 4, 5] and times.dropped == 1


def fails(self, later):
    raise RuntimeError("Both events must be completed before calculating elapsed time")


def test_events_that_can_never_be_read_are_given_up(stream, monkeypatch):
    monkeypatch.setattr(Event, "elapsed_time", fails)
    with pytest.raises(RuntimeError, match="Both events"):
        run(stream, input_ms=1, steps=gpu_events._UNREAD_MAX + 2)


def test_nothing_is_recorded_while_a_graph_is_captured(stream):
    stream.capturing = True
    times, paper = GpuTimes(stream, DEVICE), Paper()
    step(stream, times, paper, 0, input_ms=1)
    assert stream.made == 0


def test_the_allocator_is_asked_once_a_second(stream):
    paper, _ = run(stream, input_ms=300, steps=8)
    asked = [row["allocated_bytes"] for row in paper.steps]
    assert asked[0] == 5 and 1 <= asked.count(5) <= 3 and asked.count(-1) >= 4
    assert max(row["alloc_retries"] for row in paper.steps) == 1


def test_no_event_is_asked_amid_a_capture(stream):
    """A query breaks a capture that is under way; the optimizer step within it may end a recorded step."""
    times, paper = GpuTimes(stream, DEVICE), Paper()
    for number in range(2):
        step(stream, times, paper, number, input_ms=1)
    stream.done_ms, stream.capturing = stream.queued_ms, True
    times.close(2, paper)
    assert paper.steps == []
    stream.capturing = False
    for number in range(3, 6):
        step(stream, times, paper, number, input_ms=1)
        stream.done_ms = stream.queued_ms
    times.close(6, paper)
    assert [row["step"] for row in paper.steps] == [1, 4, 5], "the steps around it are not whole"


def test_a_job_that_fetches_on_another_stream_is_timed_on_the_one_that_computes(stream):
    times, paper = GpuTimes(stream, DEVICE), Paper()
    for number in range(4):
        stream.current = "copying"
        times.mark("gap")
        times.mark("input_wait")
        stream.current = "training"
        times.mark("forward")
        times.close(number, paper)


def met_step(stream, times, paper, number, *, waits_ms=(3, 5, 2), current="training"):
    """A step like the others that waits for collectives in its forward pass, in its backward pass, and after its last mark."""
    times.choose_waits(number)
    times.mark("gap")
    times.mark("input_wait")
    for phase, (name, wait_ms) in enumerate(zip(("forward", "backward", "optimizer"), waits_ms, strict=True)):
        stream.work(10)
        if name == "optimizer":
            times.mark(name)
        stream.current = current
        before = times.wait_begins()
        stream.work(wait_ms)
        if before is not None:
            times.wait_ends(before, phase)
        stream.current = "training"
        if name != "optimizer":
            times.mark(name)
    times.close(number, paper)
    stream.done_ms = stream.queued_ms


MET = ("meetings", "forward_met_ns", "backward_met_ns", "optimizer_met_ns", "least_met_ns")


def met(paper):
    return {row["step"]: tuple(row[name] for name in MET) for row in paper.steps}


def test_waits_for_collectives_are_timed_in_scattered_steps_up_to_the_last_mark(stream):
    times, paper = GpuTimes(stream, DEVICE), Paper()
    for number in range(41):
        met_step(stream, times, paper, number)
    times.close(41, paper)
    found = met(paper)
    timed = [step for step, row in found.items() if row[0] >= 0]
    assert {found[step] for step in timed} == {(2, 3 * MS, 5 * MS, 0, 3 * MS)}, (
        "what comes after the last mark may not have passed"
    )
    assert {row for step, row in found.items() if step not in timed} == {(-1, -1, -1, -1, -1)}
    assert 5 <= len(timed) <= 15
    assert all(len({step % period for step in timed}) > 2 for period in (4, 5, 8)), (
        "not in step with a loader's workers"
    )


def test_the_same_steps_are_timed_on_every_rank():
    ranks = [GpuTimes(Stream(), DEVICE) for _ in range(2)]
    for number in range(100):
        for times in ranks:
            times.choose_waits(number)
        assert ranks[0].times_waits == ranks[1].times_waits


def test_waits_on_another_stream_or_amid_a_capture_have_no_events(stream):
    times, paper = GpuTimes(stream, DEVICE), Paper()
    for number in range(11):
        met_step(stream, times, paper, number, current="communicating")
    times.close(11, paper)
    assert {row[0] for row in met(paper).values()} == {-1, 0}
    stream.capturing, before = True, stream.made
    assert times.wait_begins() is None and stream.made == before


def test_a_step_with_very_many_waits_does_not_tell_them(stream):
    times, paper = GpuTimes(stream, DEVICE), Paper()
    for number in range(3):
        times.choose_waits(number)
        times.mark("gap")
        for _ in range(5_000):
            event = times.wait_begins()
            if event is not None:
                times.wait_ends(event, 0)
        times.mark("backward")
        times.close(number, paper)
        stream.done_ms = stream.queued_ms
    times.close(3, paper)
    assert {row[0] for row in met(paper).values()} == {-1}
    assert stream.made < 2 * gpu_events._WAITS_MAX + 20, "events are used again"


def test_an_allocator_without_statistics_does_not_end_the_events(stream):
    stream.keeps_no_statistics = True
    paper, _ = run(stream, input_ms=25)
    assert len(paper.steps) >= 3 and {row["allocated_bytes"] for row in paper.steps} == {-1}


def turns(step_us, with_events_us, *, steps=3000, noted_us=12):
    """(steps with events, what the recorder took of the time) of a loop of such steps."""
    times, now, taken, timed = GpuTimes(Stream(), DEVICE), 10**12, 0, []
    for number in range(1, steps):
        if times.turn(number, now, taken):
            timed.append(number)
        own = with_events_us if times.on else noted_us
        now, taken = now + (step_us + own) * 1000, taken + own * 1000
    return timed, taken / (now - 10**12)


def test_long_steps_all_have_events():
    timed, share = turns(100_000, 100)
    assert len(timed) == 2999 and share < 0.002


@pytest.mark.parametrize("with_events_us", [60, 100, 250])
def test_short_steps_have_events_as_often_as_they_cost_little(with_events_us):
    timed, share = turns(5_000, with_events_us)
    assert share < 0.0055, "what a step with events costs and what one without does, together"
    assert timed[:59] == list(range(1, 60)), "a short run is to be understood, too"
    later = [number for number in timed if number >= 1500]
    assert len(later) >= 36, "and a long one all along"
    starts = [number for number in later[1:] if number - 1 not in later]
    assert all({number + n for n in range(12)} <= set(timed) for number in starts[:-1]), "in blocks"


def test_a_stream_is_not_timed_across_steps_without_events(stream):
    """The step before the first of a block has no end on the stream, so neither is it known how long that first one took."""
    times, paper = GpuTimes(stream, DEVICE), Paper()
    for number in range(600):
        times.turn(number, number * MS, number * MS // 20)
        step(stream, times, paper, number, input_ms=1)
        stream.done_ms = stream.queued_ms
    times.close(600, paper)
    steps = [row["step"] for row in paper.steps]
    assert steps[:59] == list(range(1, 60)) and steps[59] > 70
    assert max(row["gap_ns"] for row in paper.steps) <= MS, "none of the steps in between is in a gap"
    assert stream.made < 40, "events are used again"


@pytest.mark.parametrize(
    ("tensors", "index"),
    [
        (SimpleNamespace(device=SimpleNamespace(type="cuda", index=1)), 1),
        ([SimpleNamespace(device=SimpleNamespace(type="cuda", index=2))], 2),
        (SimpleNamespace(device=SimpleNamespace(type="cpu", index=None)), None),
        ((), None),
        (None, None),
        ([object()], None),
    ],
)
def test_the_gpu_is_that_of_the_tensors(tensors, index):
    assert cuda_index(tensors) == index


def rank_of(cuda, tmp_path):
    recorder = Recorder(SimpleNamespace(cuda=cuda, is_grad_enabled=lambda: True), str(tmp_path))
    recorder.facts.values["cuda"] = None
    return recorder


def test_no_event_is_made_before_the_gpu_is_known(stream, tmp_path, monkeypatch):
    """A loss that is back on the CPU does not name the GPU; the parameters do."""
    stream.get_device_properties = lambda device: SimpleNamespace(name="H200", major=9, minor=0, total_memory=device)
    monkeypatch.setattr("rn50_advisor.probes.rank.recorder.fast_paths", lambda torch: {})
    recorder = rank_of(stream, tmp_path)
    recorder.trains_on(SimpleNamespace(device=SimpleNamespace(type="cpu", index=None)))
    assert recorder.gpu is None and recorder.facts.values["cuda"] is None
    recorder.trains_on([SimpleNamespace(device=SimpleNamespace(type="cuda", index=DEVICE))])
    assert recorder.gpu is not None and recorder.facts.values["cuda"]["device"] == DEVICE


def test_a_gpu_that_cannot_be_described_is_gone_without(stream, tmp_path):
    recorder = rank_of(stream, tmp_path)
    recorder.trains_on([SimpleNamespace(device=SimpleNamespace(type="cuda", index=DEVICE))])
    assert recorder.gpu is None and "gpu times" in recorder.facts.values["unpatched"][0]


def test_tensors_that_are_made_one_by_one_are_left_to_the_job():
    made = (SimpleNamespace(device=SimpleNamespace(type="cuda", index=i)) for i in range(2))
    assert cuda_index(made) is None and len(list(made)) == 2


class Ring(Paper):
    words = [0] * 8

    def write(self, kind, flags, values):
        if kind == KIND_GPU_STEP:
            super().write(kind, flags, values)

    def phase(self, *values): ...
    def cost(self, *values): ...


@pytest.fixture
def training(stream, tmp_path):
    """A rank under way, seen by its recorder, on a stream that keeps up."""
    pytest.importorskip("torch")  # imported in each process that the recorder is in
    recorder = rank_of(stream, tmp_path)
    account = recorder.own_account()
    account.ring, account.run_delay, recorder.gpu = Ring(), lambda: 0, GpuTimes(stream, DEVICE)
    recorder.schedule.due_at = 1 << 62
    recorder.passes._describe_optimizer = lambda optimizer: None
    recorder.work = SimpleNamespace(sampled=lambda *where, **fetched: False, batch=None, optimizer=None)
    return recorder


def backward_that_updates(recorder, stream, optimizers, ms):
    """A backward pass with this time per gradient, whose hooks run an optimizer step of 10 us."""
    account = recorder.passes.backward_begin()
    for optimizer in optimizers:
        stream.work(ms)
        recorder.passes.optimizer_begin(optimizer)
        stream.work(0.01)
        recorder.passes.optimizer_end(optimizer)
    recorder.passes.backward_end(account)


@pytest.mark.parametrize("loader", [True, False])
def test_updates_inside_the_backward_leave_it_to_the_backward(training, stream, loader):
    optimizers = [SimpleNamespace() for _ in range(20)]
    for number in range(12):
        if loader:
            training.loading.fetch_end(training.loading.begin_fetch(training.account, 0, False, 0), [])
        stream.work(10 + number)
        backward_that_updates(training, stream, optimizers, 1 + number)
        stream.done_ms = stream.queued_ms
    steps = training.account.ring.steps
    assert len(steps) >= 6 and {row["optimizer_ns"] for row in steps} == {0}
    for row in steps[1:]:  # the first one of a loop without loader holds several
        number = round(row["forward_ns"] / MS) - 10
        assert row["backward_ns"] == pytest.approx((20 * (1 + number) + 0.2) * MS, abs=50), "in the step that it ends"
    assert stream.made < 30, "events are not made for each parameter"


def test_an_optimizer_after_the_backward_has_its_own_time(training, stream):
    optimizer = SimpleNamespace()
    for _ in range(12):
        training.loading.fetch_end(training.loading.begin_fetch(training.account, 0, False, 0), [])
        stream.work(10)
        account = training.passes.backward_begin()
        stream.work(20)
        training.passes.backward_end(account)
        training.passes.optimizer_begin(optimizer)
        stream.work(2)
        training.passes.optimizer_end(optimizer)
        stream.done_ms = stream.queued_ms
    last = training.account.ring.steps[-1]
    assert (last["backward_ns"], last["optimizer_ns"]) == (20 * MS, 2 * MS)


class Graph:
    """An object with weak references, like a CUDAGraph."""


def test_a_capture_by_another_thread_is_left_alone_and_the_steps_after_it_are_reported(stream):
    """This thread's stream does not capture: in the default mode an event that is queried here ends the capture all the same."""
    captures, graph = Captures(), Graph()
    times, paper = GpuTimes(stream, DEVICE, captures), Paper()
    for number in range(3):
        stream.done_ms = stream.queued_ms
        step(stream, times, paper, number, input_ms=5)
    captures.started(graph)
    asked = stream.made
    stream.Event = Event.query = None  # whoever makes or asks one fails
    try:
        step(stream, times, paper, 3, input_ms=5)
    finally:
        del stream.Event
        Event.query = passed
    captures.ended(graph)
    assert stream.made == asked
    before = len(paper.steps)
    for number in range(4, 8):
        stream.done_ms = stream.queued_ms
        step(stream, times, paper, number, input_ms=5)
    assert [row["step"] for row in paper.steps[before:]] == [2, 5, 6]


passed = Event.query
