"""Capacity of host-to-device copies, from a profiler window or from copies that block the host."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from device_call_facts import CUDA, MS, copy
from recordings import FIRST_STEP_NS, gpu_steps, plan, recording
from rn50_advisor.advisor.model.gpu.kernel_classes import DeepWindow
from rn50_advisor.advisor.model.recording import Event, Recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from stage_capacities import capacity, value

# 100 MB of pinned memory at 10 GB/s and 5 ms of copies from pageable memory
WINDOW = DeepWindow(
    0,
    "cuda",
    2,
    0.1,
    idle={"copy": 0.012},
    pinned_bytes=100e6,
    pinned_mb_per_s=10_000,
    pinned_least_mb_per_s=8_000,
    pinned_most_mb_per_s=12_500,
    pageable_bytes=10e6,
    pageable_s=0.005,
)
DRY = {"input_wait": 5.0, "forward": 30.0, "backward": 50.0, "optimizer": 10.0, "gap": 5.0}


def held(**given: Any) -> dict[str, Any]:
    """A copy of 77 MB in each of ten steps that holds the host for 20 ms as a rule."""
    return copy(**{"non_blocking": False, "blocked_ns": 200 * MS, "least_ns": 16 * MS, **given})


def job(
    copies: list[dict[str, Any]], *windows: DeepWindow, on_stream: dict[str, float] | None = None, **more: Any
) -> Recording:
    looked = {"syncs": {"looks": 10, "device": "cuda", "sites": []}, "copies": copies}
    events = tuple(
        Event(FIRST_STEP_NS, "deep", 100 + w.rank, w.rank, json.loads(json.dumps(asdict(w)))) for w in windows
    )
    own = more.pop("own", plan(60))
    streams = {0: gpu_steps([on_stream] * 60)} if on_stream else {}
    return recording({0: own}, facts={100: {"cuda": CUDA, **looked}}, events=events, gpu_steps=streams, **more)


def test_a_deep_window_shows_the_links_rate_and_the_time_of_pageable_copies() -> None:
    found = capacity(job([copy()], WINDOW), "copy")
    assert (found.lo, found.samples_per_s, found.hi) == pytest.approx((8 / 0.0175, 8 / 0.015, 8 / 0.013))
    assert found.basis == (
        "100 MB from pinned memory at 10,000 MB/s and 5.00 ms of copies from pageable memory, in a profiler's window"
    )


def test_a_window_of_an_older_version_has_one_rate() -> None:
    older = replace(WINDOW, pinned_least_mb_per_s=None, pinned_most_mb_per_s=None)
    found = capacity(job([copy()], older), "copy")
    assert (found.lo, found.samples_per_s, found.hi) == pytest.approx((8 / 0.015,) * 3)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"pinned_bytes": 0.0, "pageable_bytes": 0.0, "pageable_s": 0.0}, "nothing was copied"),
        ({"pinned_mb_per_s": None, "pinned_least_mb_per_s": None, "pinned_most_mb_per_s": None}, "large enough"),
    ],
)
def test_a_window_without_copy_times_has_a_reason(changed: dict[str, Any], why: str) -> None:
    found = capacity(job([copy()], replace(WINDOW, **changed)), "copy")
    assert found.samples_per_s is None and why in found.basis


@pytest.mark.parametrize("aside", [False, True])
def test_copies_that_hold_the_host_of_an_idle_gpu_are_as_long_as_they_hold_it(aside: bool) -> None:
    """Labels that are not waited for are nothing beside pictures."""
    made = job([held(aside=aside), copy(line=62, bytes=20_000)], on_stream=DRY)
    found = capacity(made, "copy")
    assert (found.lo, found.samples_per_s, found.hi) == pytest.approx((8 / 0.020, 8 / 0.020, 8 / 0.016))
    assert "20.0 ms per step, at least 16.0 ms" in found.basis
    assert value(made, "compute") == pytest.approx(8 / 0.09 if aside else 8 / 0.07, rel=0.02)


@pytest.mark.parametrize("pinned", [True, False])
def test_a_copy_from_pageable_memory_blocks_the_host_even_if_non_blocking(pinned: bool) -> None:
    found = capacity(job([held(pinned=pinned, non_blocking=True)], on_stream=DRY), "copy")
    assert (found.samples_per_s is None) == pinned


@pytest.mark.parametrize(
    ("copies", "on_stream", "why"),
    [
        pytest.param([copy()], DRY, "non-blocking copies were not timed; run with --deep", id="not blocking"),
        pytest.param([held(), copy()], DRY, "non-blocking copies were not timed", id="a half of them"),
        pytest.param([held()], {**DRY, "input_wait": 0.01}, "queued on the GPU before them", id="behind kernels"),
        pytest.param([held()], None, "queued on the GPU before them", id="no event was read"),
        pytest.param([held(aside=True)], None, None, id="on a stream of its own"),
        pytest.param([held(looks=1)], DRY, "no copy of the training thread was seen", id="now and then"),
        pytest.param([held(least_ns=0)], DRY, "too short", id="no time at all"),
    ],
)
def test_copies_are_timed_where_nothing_else_is_in_their_time(
    copies: list[dict[str, Any]], on_stream: dict[str, float] | None, why: str | None
) -> None:
    found = capacity(job(copies, on_stream=on_stream), "copy")
    assert (found.samples_per_s is None) == (why is not None) and (why or "") in found.basis


def test_a_copy_that_takes_most_of_the_forward_is_the_bottleneck_and_not_computing() -> None:
    slow = replace(WINDOW, pinned_bytes=800e6, pageable_bytes=0.0, pageable_s=0.0, idle={"copy": 0.08})
    made = job([copy()], slow, own=plan(60, input_wait=0, forward=85, backward=10, optimizer=5))
    assert value(made, "copy") == pytest.approx(100) and value(made, "compute") == pytest.approx(400)
    assert "80.0 ms of copies excluded" in capacity(made, "compute").basis
    known = [stage for stage in diagnose(made).capacities if stage.samples_per_s is not None]
    assert min(known, key=lambda stage: stage.samples_per_s or 0.0).stage == "copy"


def test_copies_beside_kernels_or_outside_the_forward_take_nothing_from_computing() -> None:
    hidden = replace(WINDOW, idle={})
    assert value(job([copy()], hidden), "compute") == pytest.approx(8 / 0.09)
    assert value(job([copy(phase="gap")], WINDOW), "compute") == pytest.approx(8 / 0.09)
    assert value(job([copy()], WINDOW), "compute") == pytest.approx(8 / 0.078)


def test_the_slowest_ranks_copies_count_and_the_others_are_taken_to_copy_as_much() -> None:
    facts = {
        100 + rank: {"cuda": CUDA, "syncs": {"looks": 10, "device": "cuda", "sites": []}, "copies": [copy()]}
        for rank in (0, 1, 2)
    }
    windows = (WINDOW, replace(WINDOW, rank=1, pageable_s=0.015))
    events = tuple(Event(FIRST_STEP_NS, "deep", 100 + w.rank, w.rank, asdict(w)) for w in windows)
    made = recording({rank: plan(60) for rank in (0, 1, 2)}, facts=facts, events=events)
    found = capacity(made, "copy")
    assert found.samples_per_s == pytest.approx(3 * 8 / 0.025) and found.basis.endswith("the slowest rank")
    assert value(made, "compute") == pytest.approx(3 * 8 / 0.078)
