"""Buffered marks make the same steps as marks processed at once."""

from __future__ import annotations

import random
import sys
import threading
import types
from pathlib import Path

import pytest

from buffered_ranks import ADAM, LOADER, Rank, count, counted, loop
from rn50_advisor.probes.rank.patches import loader_patches, mark_wrappers
from rn50_advisor.probes.rank.steps.mark_buffer import (
    BACKWARD,
    BACKWARD_END,
    BATCH,
    DELAY_FROM_NS,
    FETCH,
)
from rn50_advisor.probes.rank.steps.mark_costs import mark_ns
from rn50_advisor.probes.rank.steps.step_phases import BACKWARD as IN_BACKWARD
from rn50_advisor.probes.rank.steps.step_phases import CLIP, INPUT
from step_loops import MS
from stub_training import Training, torch


@pytest.mark.parametrize(
    "shape",
    [
        {},
        {"odd": 0.0},
        {"micro": 3},
        {"loader": False},
        {"optimizers": 2},
        {"loader": False, "optimizers": 2},
        {"inside": True, "optimizers": 30},
        {"inside": True, "optimizers": 30, "loader": False},
        {"odd": 0.6},
        {"odd": 0.0, "twice": 0.3},
        {"odd": 0.0, "raises": 0.3},
        {"raises": 0.2, "optimizers": 2},
    ],
    ids=str,
)
def test_buffered_marks_make_the_same_steps(shape) -> None:
    for seed in range(20):
        script = loop(random.Random(seed), 120, **shape)
        direct, buffered = Rank(buffered=False), Rank(buffered=True)
        expected = direct.play(script)
        assert buffered.play(script) == expected
        assert buffered.paper.spans == direct.paper.spans
        assert buffered.noted > len(script) / 4, "something was noted at all"
        assert buffered.beyond == 0 or "raises" in shape, (
            "no more steps than were to be noted, where all have as many batches"
        )
        assert buffered.account.phase == direct.account.phase and buffered.account.loaders == direct.account.loaders


def test_most_steps_of_a_plain_loop_are_noted_and_none_of_them_is_clocked() -> None:
    rank = Rank(buffered=True)
    rank.play(loop(random.Random(0), 200, odd=0.0))
    assert rank.noted > 5 * 100
    assert any(rank.paper.clocked) and not all(rank.paper.clocked)


def test_a_flush_ends_buffering_and_charges_its_cost() -> None:
    rank = Rank(buffered=True)
    rank.play(loop(random.Random(0), 40, odd=0.0))
    account, buffer = rank.account, rank.buffer
    before = account.self_ns
    buffer.start(account, 3, None)
    buffer.marks[BATCH].append(rank.now)
    buffer.flush_into(account)
    assert not buffer.on and not any(buffer.marks)
    assert account.self_ns - before >= mark_ns(account.last_step_ns) > 0
    assert account.clock() == rank.now and not account.replaying


@pytest.mark.parametrize(("length_ns", "delays"), [(DELAY_FROM_NS, [7, 0]), (DELAY_FROM_NS - 1, [0, 0])])
def test_the_run_queue_delay_is_read_at_a_flush_of_long_steps(length_ns, delays) -> None:
    rank = Rank(buffered=False)
    rank.play(loop(random.Random(0), 5, odd=0.0))
    account, buffer = rank.account, rank.buffer
    account.last_step_ns = length_ns
    waited = iter((7, 7))
    account.run_delay = lambda: next(waited)
    for _ in range(2):
        buffer.start(account, 1, None)
        rank.now += MS
        for times in buffer.marks:
            times.append(rank.now)
        buffer.flush_into(account)
        account.last_step_ns = length_ns
    assert [step["run_delay_ns"] for step in rank.paper.steps[-2:]] == delays


def test_the_run_queue_delay_goes_to_the_buffered_steps_that_took_longer() -> None:
    rank = Rank(buffered=False)
    rank.play(loop(random.Random(0), 5, odd=0.0))
    account, buffer = rank.account, rank.buffer
    account.last_step_ns = DELAY_FROM_NS
    account.run_delay = lambda: 80 * MS
    buffer.start(account, 5, None)
    for length_ms in (20, 50, 20, 20, 80):
        rank.now += length_ms * MS
        for times in buffer.marks:
            times.append(rank.now)
    buffer.flush_into(account)
    assert [step["run_delay_ns"] // MS for step in rank.paper.steps[-5:]] == [0, 26, 0, 0, 53]


def test_a_batch_of_another_loader_is_counted_anew_though_it_holds_as_many_elements() -> None:
    rank = Rank(buffered=True)
    buffer = rank.buffer
    for loader, elements in ((LOADER, -1), (LOADER, 768), (LOADER + 1, -1)):
        rank.account.last_loader = loader
        buffer.start(rank.account, 2, None)
        assert buffer.elements == elements
        buffer.elements = 768


def test_a_mark_that_came_after_the_last_reading_is_no_part_of_the_next() -> None:
    rank = Rank(buffered=True)
    rank.buffer.marks[BACKWARD].append(1)  # noted by a mark that a signal handler cut in two
    rank.buffer.sizes[1], rank.buffer.others[1] = 4, ADAM
    rank.buffer.start(rank.account, 2, None)
    assert not any((*rank.buffer.marks, rank.buffer.sizes, rank.buffer.others))


def test_a_counted_step_that_something_interrupts_goes_on_in_its_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = counted(fed=True)
    account = rank.account
    count(rank, 3)
    began, step = rank.now, account.step
    rank.buffer.phase = IN_BACKWARD
    rank.now += 5 * MS
    monkeypatch.setattr("rn50_advisor.probes.rank.steps.mark_buffer.perf_counter_ns", lambda: rank.now)
    rank.read()
    assert account.step == step + 3 and account.phase == IN_BACKWARD and account.t_start == began
    assert (account.wall[INPUT], account.since) == (2 * MS, began + 4 * MS)
    account.backward_end()
    account.optimizer_begin(ADAM)
    account.optimizer_end(ADAM)
    account.fetch_begin(LOADER, False, False)
    assert rank.paper.steps[-1]["step"] == step + 3 and rank.paper.more[-1] == 0


def test_batches_without_an_update_are_no_steps_though_they_were_to_be_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    rank = counted(fed=True)
    step, buffer = rank.account.step, rank.buffer
    monkeypatch.setattr("rn50_advisor.probes.rank.steps.mark_buffer.perf_counter_ns", lambda: rank.now)
    for _ in range(4):
        rank.now += 2 * MS
        buffer.marks[FETCH].append(rank.now)
    rank.read()
    assert rank.account.step == step and rank.account.phase == INPUT


@pytest.mark.parametrize(("steps", "asked", "wasted"), [(2, 10, 3), (8, 10, 0), (2, 3, 0), (0, 10, 3)])
def test_a_stretch_that_is_interrupted_early_was_not_worth_it(
    monkeypatch: pytest.MonkeyPatch, steps: int, asked: int, wasted: int
) -> None:
    rank = counted(fed=True)
    monkeypatch.setattr("rn50_advisor.probes.rank.steps.mark_buffer.perf_counter_ns", lambda: rank.now)
    rank.buffer.start(rank.account, asked, None, counted=True)
    rank.buffer.short_stretches = 2
    count(rank, steps)
    rank.buffer.phase = IN_BACKWARD
    rank.now += 5 * MS
    rank.read()
    assert rank.buffer.short_stretches == wasted


def in_another_thread(call: object, *args: object) -> None:
    thread = threading.Thread(target=call, args=args)  # type: ignore[arg-type]
    thread.start()
    thread.join()


def test_an_iterator_that_another_thread_makes_where_a_noted_one_was_is_not_taken_for_it(tmp_path: Path) -> None:
    training = Training(tmp_path)
    buffer, there = training.recorder.buffer, types.SimpleNamespace()
    for made, noted in ((types.SimpleNamespace(), True), (there, False)):
        buffer.start(training.account, 3, None, iterator=id(there))
        in_another_thread(training.recorder.loading.iterator_made, made, object(), 0)
        assert (buffer.iterator == id(there)) is noted


class Batches:
    """An iterator as torch's are made, of batches without end."""

    def __init__(self, loader: object) -> None:
        self.loader = loader

    def __next__(self) -> list[object]:
        return []

    _num_yielded = 1

    def _reset(self, loader: object) -> None: ...

    def _shutdown_workers(self) -> None: ...


@pytest.fixture
def dataloader(monkeypatch: pytest.MonkeyPatch) -> types.SimpleNamespace:
    """In place of `torch.utils.data.dataloader`."""
    kinds = {f"_{kind}DataLoaderIter": type(kind, (Batches,), {}) for kind in ("SingleProcess", "MultiProcessing")}
    module = types.SimpleNamespace(
        _BaseDataLoaderIter=type("Base", (Batches,), {}), DataLoader=type("DataLoader", (), {}), **kinds
    )
    for name, standing_in in {"torch": torch, "torch.utils": torch, "torch.utils.data": module}.items():
        monkeypatch.setitem(sys.modules, name, standing_in)  # type: ignore[arg-type]
    module.dataloader = module
    return module


def test_a_counted_backward_pass_notes_where_it_is_even_if_it_raises(tmp_path: Path) -> None:
    training, seen = Training(tmp_path), []
    buffer = training.recorder.buffer

    def original(root: str) -> None:
        seen.append(buffer.phase)
        if root == "nested":
            stub.autograd.backward("inner")
            seen.append(buffer.phase)
        if root == "bad":
            raise ValueError

    stub = types.SimpleNamespace(autograd=types.SimpleNamespace(backward=original))
    mark_wrappers.mark_backward(stub, training.recorder)
    training.account.fewest_rounds = 1
    buffer.start(training.account, 3, None, counted=True)
    for root in ("plain", "nested"):
        stub.autograd.backward(root)
        assert buffer.phase == CLIP
    with pytest.raises(ValueError):
        stub.autograd.backward("bad")
    assert buffer.phase == CLIP and buffer.on and seen == [IN_BACKWARD] * 5
    in_another_thread(stub.autograd.backward, "plain")
    assert not buffer.counting, "another thread trains, too"
    assert training.recorder.errors == 0


def test_backward_passes_alone_end_a_stretch_of_counted_steps(tmp_path: Path) -> None:
    training = Training(tmp_path)
    buffer, stub = (
        training.recorder.buffer,
        types.SimpleNamespace(autograd=types.SimpleNamespace(backward=lambda root: None)),
    )
    mark_wrappers.mark_backward(stub, training.recorder)
    training.account.fewest_rounds, training.account.since = 1, 1_000
    buffer.usual.offsets = [0, 1, 2, 3, 4]
    buffer.start(training.account, 3, None, counted=True)
    most = buffer.marks_max
    for _ in range(most):
        stub.autograd.backward("one")
    assert buffer.counting and not buffer.marks[BACKWARD_END], "only counted"
    stub.autograd.backward("one more")
    assert not buffer.counting and training.recorder.errors == 0
    assert all(len(marks) <= most for marks in buffer.marks)


def test_only_the_training_thread_notes_fetches_and_those_of_its_own_iterator(
    tmp_path: Path, dataloader: types.SimpleNamespace
) -> None:
    training = Training(tmp_path)
    loader_patches.patch_loaders(types.SimpleNamespace(is_grad_enabled=lambda: True, Tensor=object), training.recorder)
    buffer = training.recorder.buffer
    own, other = (dataloader._BaseDataLoaderIter(None) for _ in range(2))
    training.account.fewest_rounds = 1
    buffer.start(training.account, 3, None, iterator=id(own))
    in_another_thread(next, own)
    in_another_thread(next, other)
    assert not any(buffer.marks) and buffer.on
    next(own)
    assert [kind for kind, times in enumerate(buffer.marks) if times] == [BATCH, FETCH]
    next(other)
    assert not buffer.on, "its fetch is processed at once, with what was noted before"
    assert training.recorder.errors == 0
