"""Fetches end whatever their batch is, and nested ones are part of the outer one."""

from __future__ import annotations

import types
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank.layout import PHASE_CODE
from rn50_advisor.probes.rank.recorder import Recorder
from step_loops import Paper

pytest.importorskip("torch")  # imported in each process that the recorder is in


torch = types.SimpleNamespace(is_grad_enabled=lambda: True)


@pytest.fixture
def recorder(tmp_path: Path) -> Recorder:
    return Recorder(torch, str(tmp_path))


class Nested:
    """A nested tensor: it has samples and no shape."""

    @property
    def shape(self) -> Any:
        raise RuntimeError("NestedTensorImpl doesn't support sizes")


@pytest.mark.parametrize("batch", [{"text": Nested()}, [Nested()], types.SimpleNamespace(shape=lambda: (4, 3))])
def test_a_batch_that_cannot_be_counted_still_ends_its_fetch(recorder: Recorder, batch: Any) -> None:
    account: Any = recorder.own_account()
    account.ring = Paper()
    recorder.loading.loaders.described[0] = {"batch_size": None, "sampler_batch_size": 6}
    token = recorder.loading.begin_fetch(account, 0, False, 0)
    recorder.loading.fetch_end(token, batch)
    assert account.phase == PHASE_CODE["forward"] and account.samples == 6


def test_a_loader_inside_a_data_set_is_part_of_the_fetch_that_runs(recorder: Recorder) -> None:
    outer: Any = types.SimpleNamespace(_rn50_loader=0, _num_yielded=3)
    inner: Any = types.SimpleNamespace(_rn50_loader=1, _num_yielded=3)
    token = recorder.loading.fetch_begin(outer)
    assert token is not None and recorder.loading.fetch_begin(inner) is None
    recorder.loading.fetch_end(token, [])
    assert recorder.account.phase == PHASE_CODE["forward"] and set(recorder.account.fetched) == {0}


def test_events_that_do_not_fit_cost_the_gpu_times_and_no_more(recorder: Recorder) -> None:
    account: Any = recorder.own_account()
    account.ring = Paper()
    recorder.gpu = types.SimpleNamespace(mark=lambda *_, **__: 1 / 0)  # type: ignore[assignment]
    token = recorder.loading.begin_fetch(account, 0, False, 0)
    recorder.loading.fetch_end(token, [])
    assert recorder.gpu is None and account.phase == PHASE_CODE["forward"]
    assert recorder.facts.values["unpatched"] == ["gpu times: division by zero"]


def test_on_the_gpu_too_the_time_before_a_fetch_is_computing_if_several_batches_come_before_a_backward_pass(
    recorder: Recorder,
) -> None:
    account: Any = recorder.own_account()
    account.ring, account.run_delay, account.on_step = Paper(), lambda: 0, None
    marks: list[tuple[str, bool]] = []
    recorder.gpu = types.SimpleNamespace(mark=lambda ended, *, fetches=False: marks.append((ended, fetches)))  # type: ignore[assignment]
    for _ in range(3):
        marks.clear()
        for _ in range(2):
            recorder.loading.fetch_end(recorder.loading.begin_fetch(account, 0, False, 0), [])
        account.backward_begin()
        account.backward_end()
        account.optimizer_begin(1)
        account.optimizer_end(1)
    assert marks == [("gap", True), ("input_wait", False), ("forward", True), ("input_wait", False)]


def test_between_micro_batches_with_a_backward_pass_each_it_is_not(recorder: Recorder) -> None:
    account: Any = recorder.own_account()
    account.ring, account.run_delay, account.on_step = Paper(), lambda: 0, None
    marks: list[str] = []
    recorder.gpu = types.SimpleNamespace(mark=lambda ended, **_: marks.append(ended))  # type: ignore[assignment]
    for _ in range(3):
        recorder.loading.fetch_end(recorder.loading.begin_fetch(account, 0, False, 0), [])
        account.backward_begin()
        account.backward_end()
    assert marks == ["gap", "input_wait"] * 3
