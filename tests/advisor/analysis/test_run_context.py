"""What is gathered of any run, and what of one with steady steps."""

from __future__ import annotations

import pytest

from recordings import plan, recording, stack
from rn50_advisor.advisor.analysis.run_context import RunContext, run_context, steady_context
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.model.recording import Recording

LOADER = {"id": 0, "training": True, "file": "/job/t.py", "line": 4, "num_workers": 0, "batch_size": 8}


def context(made: Recording) -> RunContext:
    everything = all_steps(made)
    return run_context(made, everything, steady_steps(everything))


def test_a_run_without_anything_has_a_context() -> None:
    bare = context(recording({}))
    assert (bare.everything, bare.steady, bare.loaders, bare.mounts, bare.devices) == ({}, {}, (), (), ())
    assert (bare.windows, bare.nccl, bare.memory, bare.hot_lines) == ((), None, (), ())


def test_loaders_devices_and_lines_come_from_what_ranks_and_agent_wrote() -> None:
    gpu = {"index": 0, "name": "A100", "uuid": "GPU-aa", "pci_bus_id": "x", "mem_total_bytes": 1}
    looks = tuple(stack("/job/t.py", 7, "log") for _ in range(4))
    facts = {100: {"loaders": [LOADER], "cuda": {"device": 0, "uuid": "aa", "visible": None}}}
    found = context(recording({0: plan()}, facts=facts, events=looks, meta={"environment": {"gpus": [gpu]}}))
    assert [(loader.rank, loader.line) for loader in found.loaders] == [(0, 4)]
    assert [(device.name, device.ranks) for device in found.devices] == [("A100", (0,))]
    assert [(line.line, line.samples) for line in found.hot_lines] == [(7, 4)]


def test_the_window_spans_the_steady_steps_of_all_ranks() -> None:
    made = recording({0: plan(30), 1: plan(30, forward=80)}, ddp=False)
    steady = steady_context(context(made))
    assert steady.window.start_ns == made.steps[0]["t_start_ns"][3], "of the rank that began first, after its warm-up"
    assert steady.window.end_ns == made.steps[1]["t_end_ns"][-1]
    assert set(steady.loading) == set(steady.accounts.own) == {0, 1}


@pytest.mark.parametrize(
    ("facts", "unclocked"), [({}, set()), ({101: {"run_delay": False}}, {1}), ({100: {"run_delay": True}}, set())]
)
def test_ranks_whose_kernel_keeps_no_delay_are_known(facts: dict[int, dict[str, bool]], unclocked: set[int]) -> None:
    made = recording({0: plan(), 1: plan()}, facts=facts)
    assert steady_context(context(made)).unclocked == unclocked


def test_torchs_own_loaders_leave_no_other_source_of_batches() -> None:
    steady = steady_context(context(recording({0: plan()}, facts={100: {"loaders": [LOADER]}})))
    assert steady.source is None and isinstance(steady.cost, str), "nobody looked into a sample"
