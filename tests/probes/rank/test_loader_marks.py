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
    recorder.gpu = types.SimpleNamespace(mark=lambda ended: 1 / 0)  # type: ignore[assignment]
    token = recorder.loading.begin_fetch(account, 0, False, 0)
    recorder.loading.fetch_end(token, [])
    assert recorder.gpu is None and account.phase == PHASE_CODE["forward"]
    assert recorder.facts.values["unpatched"] == ["gpu times: division by zero"]
