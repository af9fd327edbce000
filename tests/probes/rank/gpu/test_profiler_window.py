"""The deep window in a rank: it opens and closes at the start of a step, gives way to conflicts, and never raises."""

from __future__ import annotations

import gc
import json
import os
import signal
import sys
from types import SimpleNamespace
from typing import ClassVar

import pytest

from rn50_advisor.advisor.analysis.kernels.chrome_trace import STEP_MARK as READ_MARK
from rn50_advisor.advisor.run.sidefiles.recorder_requests import ask
from rn50_advisor.probes.rank.gpu import profiler_window
from rn50_advisor.probes.rank.layout import FLAG_DEEP, FLAG_EPOCH_START
from rn50_advisor.probes.rank.side_files import DEEP_REQUEST
from rn50_advisor.probes.rank.steps.step_phases import BACKWARD, CHECKPOINT, CLIP, EVALUATION, FORWARD, INPUT


class Profile:
    """In the place of torch's: writes a file of `size` bytes."""

    size = 2000
    made: ClassVar[list[Profile]] = []

    def __init__(self, *, activities, record_shapes) -> None:
        self.activities, self.calls = activities, []
        Profile.made.append(self)

    def start(self) -> None:
        self.level = os.environ.get("KINETO_LOG_LEVEL")
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def export_chrome_trace(self, path: str) -> None:
        with open(path, "w") as file:  # noqa: PTH123 - as torch does
            file.write("x" * self.size)


class Record:
    marks = 0

    def __init__(self, name: str) -> None:
        assert name == READ_MARK

    def __enter__(self) -> None:
        Record.marks += 1

    def __exit__(self, *error: object) -> None:
        pass


class Facts:
    def __init__(self) -> None:
        self.states: list[dict] = []
        self.values: dict = {}

    def update(self, values: dict) -> None:
        (key,) = values
        assert key == "deep"
        self.states.append(values[key])


@pytest.fixture
def torch(monkeypatch):
    for name in profiler_window._TOOLS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(profiler_window, "_FROZEN", gc.get_freeze_count())  # by the tests' own start
    Profile.made, Record.marks = [], 0
    activity = SimpleNamespace(CPU="cpu", CUDA="cuda")
    made = SimpleNamespace(
        profiler=SimpleNamespace(
            ProfilerActivity=activity, _KinetoProfile=Profile, supported_activities=lambda: {"cpu", "cuda"}
        ),
        autograd=SimpleNamespace(
            _profiler_enabled=lambda: False,
            profiler=SimpleNamespace(
                record_function=Record,
                profile=type("profile", (), {}),
                _prepare_profiler=lambda: "prepared",
                _enable_profiler=lambda: "enabled",
            ),
        ),
        compiler=SimpleNamespace(is_dynamo_compiling=lambda: False),
        nn=SimpleNamespace(Module=type("Module", (), {"train": lambda self, mode=True: (self, mode)})),
        cuda=SimpleNamespace(is_initialized=lambda: False, CUDAGraph=type("CUDAGraph", (), {"__module__": "x"})),
    )
    # the job has none before the window is opened; the doubles of earlier tests may linger
    monkeypatch.setattr(profiler_window.gc, "get_objects", lambda: [])
    return made


class Account:
    """The part of the account that the window uses, on real steps."""

    def __init__(self, step: int = 0) -> None:
        self.step, self.flags, self.last_step_ns, self.thread, self.backwards = (
            step,
            0,
            10_000_000,
            profiler_window.get_ident(),
            0,
        )
        self.entered: list[int] = []

    def enter(self, phase: int, charge: int = -1) -> int:
        self.entered.append(phase)
        return len(self.entered)

    def batch(self) -> None:
        for phase in (INPUT, FORWARD, BACKWARD, CLIP):
            self.enter(phase)
        self.backwards += 1


@pytest.fixture
def rank(torch, tmp_path):
    """A rank of which two steps are wanted from step 10 on."""
    ask(tmp_path, tmp_path)
    facts = Facts()
    window = profiler_window.asked(torch, str(tmp_path), facts, 0, 0)
    account = Account()
    trace = tmp_path / f"deep-{os.getpid()}.json"
    return SimpleNamespace(window=window, account=account, facts=facts, torch=torch, folder=tmp_path, trace=trace)


def play(rank, until: int) -> dict[int, int]:
    """Steps up to `until`, as the recorder starts them: flags by step."""
    flags = {}
    while rank.account.step < until:
        rank.account.step += 1
        rank.account.flags = FLAG_EPOCH_START
        if rank.account.step >= rank.window.next_step:
            rank.window.at_step(rank.account)
        flags[rank.account.step] = rank.account.flags
    return flags


def test_both_sides_speak_of_the_same() -> None:
    assert profiler_window.STEP_MARK == READ_MARK


def test_two_steps_are_profiled_and_those_that_pay_for_it_are_flagged(rank) -> None:
    flags = play(rank, 20)
    assert [step for step, flag in flags.items() if flag & FLAG_DEEP] == [10, 11, 12]
    assert all(flag & FLAG_EPOCH_START for flag in flags.values())
    [profile] = Profile.made
    assert profile.calls == ["start", "stop"] and Record.marks == 3
    state = rank.facts.states[-1]
    assert (state["state"], state["first_step"], state["steps"], state["bytes"]) == ("done", 10, 2, 2000)
    assert {"start_s", "stop_s", "export_s"} <= state.keys()
    assert rank.trace.exists() and not rank.window.on and rank.window.next_step == profiler_window.NEVER


def test_without_a_request_there_is_no_window(torch, tmp_path) -> None:
    assert profiler_window.asked(torch, str(tmp_path), Facts(), 0, 0) is None
    (tmp_path / DEEP_REQUEST).write_text("{not json")
    assert profiler_window.asked(torch, str(tmp_path), Facts(), 0, 0) is None


@pytest.mark.parametrize(
    ("number", "local", "wanted"), [(0, 0, True), (3, 0, True), (1, 1, False), (-1, -1, True), (1, -1, False)]
)
def test_one_rank_of_a_node_is_profiled(torch, tmp_path, number: int, local: int, wanted: bool) -> None:
    ask(tmp_path, tmp_path)
    assert (profiler_window.asked(torch, str(tmp_path), Facts(), number, local) is not None) is wanted


def test_an_automatic_window_waits_until_this_very_process_is_asked(torch, tmp_path) -> None:
    ask(tmp_path, tmp_path, auto=True)
    facts = Facts()
    window = profiler_window.asked(torch, str(tmp_path), facts, 1, 1)
    account = Account(step=5)
    window.at_step(account)
    assert window.next_step == 105 and not window.on and account.flags == 0  # it checks once a second
    ask(tmp_path, tmp_path, pid=os.getpid() + 1)
    account.step = 105
    window.at_step(account)
    assert window.next_step == 205 and not window.on
    ask(tmp_path, tmp_path, pid=os.getpid())
    account.step = 205
    window.at_step(account)
    assert window.on and account.flags == FLAG_DEEP and not facts.states
    window.give_way("the test is over")


def refused(rank) -> str:
    flags = play(rank, 40)
    assert not Profile.made and not rank.window.on
    assert [step for step, flag in flags.items() if flag & FLAG_DEEP] == [10]
    assert rank.facts.states[-1]["state"] == "refused"
    return rank.facts.states[-1]["reason"]


def test_another_profiler_that_runs_is_left_alone(rank) -> None:
    rank.torch.autograd._profiler_enabled = lambda: True
    assert refused(rank) == "another profiler is running"


def test_a_profiler_of_the_jobs_own_is_left_alone_before_it_starts(rank, monkeypatch) -> None:
    profile = object.__new__(type("TheirProfile", (Profile,), {}))
    monkeypatch.setattr(profiler_window.gc, "get_objects", lambda: [1, "x", profile])
    assert refused(rank) == "the job has a profiler of its own"


def test_cuda_graphs_are_left_alone(rank, monkeypatch) -> None:
    monkeypatch.setattr(profiler_window.gc, "get_objects", lambda: [rank.torch.cuda.CUDAGraph()])
    assert refused(rank) == "the job replays CUDA graphs"


def test_frozen_objects_cannot_be_checked(rank) -> None:
    gc.freeze()  # for good: what was frozen before would come back with it
    assert "gc.freeze()" in refused(rank)


def test_what_was_frozen_before_torch_was_there_is_no_graph(rank, monkeypatch) -> None:
    monkeypatch.setattr(profiler_window, "_FROZEN", 1000)
    monkeypatch.setattr(profiler_window.gc, "get_freeze_count", lambda: 1000)
    play(rank, 20)
    assert rank.facts.states[-1]["state"] == "done"


def test_a_tool_on_the_gpu_is_left_alone(rank, monkeypatch) -> None:
    monkeypatch.setenv("NSYS_PROFILING_SESSION_ID", "1")
    assert refused(rank) == "another tool profiles the GPU"


def test_memory_of_a_full_gpu_is_left_alone(rank) -> None:
    rank.torch.cuda.is_initialized = lambda: True
    rank.facts.values["cuda"] = {"device": 3}
    rank.torch.cuda.mem_get_info = lambda device: (100 << 20 if device == 3 else 4 << 30, 80 << 30)
    assert refused(rank) == "the GPU's memory is full"


def test_on_a_gpu_its_kernels_are_recorded_too(rank) -> None:
    rank.torch.cuda.is_initialized = lambda: True
    rank.facts.values["cuda"] = {"device": 3}
    rank.torch.cuda.mem_get_info = lambda device: (4 << 30, 80 << 30)
    play(rank, 20)
    assert Profile.made[0].activities == ["cpu", "cuda"]


@pytest.mark.parametrize("name", ["_prepare_profiler", "_enable_profiler"])
def test_a_profiler_that_starts_meanwhile_can_run(rank, name: str) -> None:
    module = rank.torch.autograd.profiler
    originals = module._prepare_profiler, module._enable_profiler
    play(rank, 10)
    assert rank.window.on and (module._prepare_profiler, module._enable_profiler) != originals
    assert getattr(module, name)() in ("prepared", "enabled")
    assert not rank.window.on and Profile.made[0].calls == ["start", "stop"]
    assert (module._prepare_profiler, module._enable_profiler) == originals
    assert rank.facts.states[-1]["state"] == "trying"
    play(rank, 30)  # and later it is tried again
    assert rank.facts.states[-1]["state"] == "done" and rank.facts.states[-1]["first_step"] == 15


def test_after_three_forks_it_is_given_up(rank) -> None:
    for _ in range(3):
        while not rank.window.on:
            play(rank, rank.account.step + 1)
        rank.window.give_way("a process was forked")
    assert rank.facts.states[-1] == {**rank.facts.states[-1], "state": "refused", "reason": "a process was forked"}
    assert rank.window.next_step == profiler_window.NEVER
    rank.window.give_way("a process was forked")  # nothing is open: nothing happens
    assert len(rank.facts.states) == 3


def test_another_thread_does_not_close_it(rank) -> None:
    play(rank, 10)
    rank.account.thread = -1
    rank.window.give_way("a process was forked")
    assert rank.window.on


@pytest.mark.parametrize("when", ["start", "stop", "export_chrome_trace"])
def test_every_failure_is_reported_and_nothing_escapes(rank, monkeypatch, when: str) -> None:
    def fails(*args: object) -> None:
        raise RuntimeError("Kineto is out of order")

    monkeypatch.setattr(Profile, when, fails)
    play(rank, 20)
    assert rank.facts.states[-1]["state"] == "refused"
    assert rank.facts.states[-1]["reason"] == "RuntimeError: Kineto is out of order"
    module = rank.torch.autograd.profiler
    assert not rank.window.on and module._enable_profiler() == "enabled"


def test_a_trace_that_is_too_large_goes_again(rank, monkeypatch) -> None:
    monkeypatch.setattr(Profile, "size", 2_000_000)
    request = json.loads((rank.folder / DEEP_REQUEST).read_text())
    rank.window._request = {**request, "bytes_max": 1_000_000}
    play(rank, 20)
    assert rank.facts.states[-1]["reason"] == "its trace is 2 MB large" and not rank.trace.exists()


def test_a_folder_that_is_gone_costs_the_window_alone(rank) -> None:
    rank.window._request = {**rank.window._request, "folder": str(rank.folder / "gone")}
    assert "FileNotFoundError" in refused(rank)


def test_kineto_is_kept_quiet_and_the_jobs_environment_stays_its_own(rank, monkeypatch) -> None:
    monkeypatch.delenv("KINETO_LOG_LEVEL", raising=False)
    play(rank, 20)
    assert Profile.made[0].level == "99" and "KINETO_LOG_LEVEL" not in os.environ


def test_a_level_that_the_job_has_chosen_stays(rank, monkeypatch) -> None:
    monkeypatch.setenv("KINETO_LOG_LEVEL", "0")
    play(rank, 20)
    assert Profile.made[0].level == os.environ["KINETO_LOG_LEVEL"] == "0"


def test_what_the_job_puts_in_their_place_meanwhile_stays(rank) -> None:
    module = rank.torch.autograd.profiler
    play(rank, 10)
    own = module._enable_profiler = lambda: "the job's"
    play(rank, 20)
    assert rank.facts.states[-1]["state"] == "done"
    assert module._enable_profiler is own and module._prepare_profiler() == "prepared"


@pytest.mark.parametrize(
    ("phase", "reason"), [(EVALUATION, "an evaluation began"), (CHECKPOINT, "a checkpoint was written")]
)
def test_it_ends_where_an_evaluation_or_a_checkpoint_starts_and_comes_again(rank, phase: int, reason: str) -> None:
    play(rank, 10)
    rank.account.batch()
    assert rank.window.on
    rank.account.enter(phase)
    assert not rank.window.on and Profile.made[0].calls == ["start", "stop"] and not rank.trace.exists()
    assert rank.account.entered[-1] == phase and rank.account.flags & FLAG_DEEP
    assert (rank.facts.states[-1]["state"], rank.facts.states[-1]["reason"]) == ("trying", reason)
    play(rank, 30)
    assert (rank.facts.states[-1]["state"], rank.facts.states[-1]["first_step"]) == ("done", 15)


@pytest.mark.parametrize("arguments", [((False,), {}), ((), {"mode": False})])
def test_it_ends_where_a_model_is_put_into_evaluation(rank, arguments: tuple[tuple, dict]) -> None:
    model, original = rank.torch.nn.Module(), rank.torch.nn.Module.train
    play(rank, 10)
    assert model.train() == model.train(True) == (model, True) and rank.window.on
    assert model.train(*arguments[0], **arguments[1]) == (model, False)
    assert not rank.window.on and rank.facts.states[-1]["reason"] == "an evaluation began"
    assert rank.torch.nn.Module.train is original


def test_the_wrapper_shows_neither_by_name_nor_in_a_traceback(rank) -> None:
    module = rank.torch.nn.Module
    original = module.train
    play(rank, 10)
    assert module.train is not original and module.train.__name__ == original.__name__
    with pytest.raises(TypeError) as caught:
        module.train()
    assert [entry.name for entry in caught.traceback] == [sys._getframe().f_code.co_name]


def test_to_dynamo_it_is_no_evaluation(rank) -> None:
    rank.torch.compiler.is_dynamo_compiling = lambda: True
    play(rank, 10)
    rank.torch.nn.Module().train(False)
    assert rank.window.on
    rank.window.give_way("the test is over")


def test_steps_of_several_batches_are_seen_and_those_of_very_many_are_not(rank) -> None:
    play(rank, 10)
    for _ in range(profiler_window._BATCHES_MAX):
        rank.account.batch()
    assert rank.window.on
    rank.account.batch()
    assert not rank.window.on and "more than 16 batches" in rank.facts.states[-1]["reason"]


def test_backward_passes_without_a_fetch_count_too(rank) -> None:
    play(rank, 10)
    rank.account.backwards += profiler_window._BATCHES_MAX + 1
    rank.account.enter(CLIP)
    assert not rank.window.on


def test_a_loop_that_accumulates_much_is_left_alone_from_the_first(rank) -> None:
    rank.account.backwards = 640
    assert refused(rank) == "each step has some 64 backward passes"


def test_what_takes_several_times_as_long_as_usual_is_not_waited_for(rank, monkeypatch) -> None:
    now = [10**12]
    monkeypatch.setattr(profiler_window, "perf_counter_ns", lambda: now[0])
    play(rank, 10)
    now[0] += 1_000_000_000
    rank.account.enter(FORWARD)
    assert rank.window.on
    now[0] += 81_000_000  # two steps of 10 ms, four times over
    rank.account.enter(BACKWARD)
    assert not rank.window.on and "as long as usual" in rank.facts.states[-1]["reason"]


def test_the_account_is_its_own_again_when_the_window_has_closed(rank) -> None:
    play(rank, 11)
    assert "enter" in vars(rank.account)
    play(rank, 20)
    assert "enter" not in vars(rank.account) and rank.facts.states[-1]["state"] == "done"


def test_the_time_of_every_attempt_is_reported(rank, monkeypatch) -> None:
    now = [10**12]
    monkeypatch.setattr(profiler_window, "perf_counter_ns", lambda: now[0])

    def takes(self, *args: object) -> None:
        now[0] += 2_000_000_000

    monkeypatch.setattr(Profile, "stop", takes)
    monkeypatch.setattr(Profile, "export_chrome_trace", lambda self, path: 1 / 0)
    play(rank, 10)
    rank.account.enter(EVALUATION)
    assert rank.facts.states[-1]["stop_s"] == 2.0
    play(rank, 30)
    assert rank.facts.states[-1]["state"] == "refused" and rank.facts.states[-1]["stop_s"] == 4.0


class Late(Exception):
    pass


def late(number, frame):
    raise Late


def test_what_a_signal_handler_of_the_jobs_raises_meanwhile_is_the_jobs(rank, monkeypatch) -> None:
    monkeypatch.setattr(Profile, "start", lambda self: signal.raise_signal(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, late)
    try:
        with pytest.raises(Late):
            play(rank, 20)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not rank.window.on and rank.facts.states[-1]["state"] == "refused"


def test_one_that_comes_while_it_gives_way_is_the_jobs_too(rank, monkeypatch) -> None:
    monkeypatch.setattr(Profile, "stop", lambda self: signal.raise_signal(signal.SIGUSR1))
    before = signal.signal(signal.SIGUSR1, late)
    try:
        play(rank, 10)
        with pytest.raises(Late):
            rank.account.enter(EVALUATION)
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert not rank.window.on and "enter" not in vars(rank.account)
