"""Where the GPU idled and where it kept the host's pace, from made-up events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from recordings import gpu_steps, plan, recording, step
from rn50_advisor.advisor.analysis.gpu.host_pacing import BEHIND, gaps_as_seen, pace_values
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.model.gpu.gpu_facts import Gpu
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites, HostCopy, Wait
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.rank.layout import FLAG_TRACED

STEPS = 40
# The host launches in 20 + 30 + 5 ms of a step and waits 4 for a batch.
HOST = {"input_wait": 4, "forward": 20, "backward": 30, "optimizer": 5, "gap": 1}


def job(gpu: Mapping[str, float], host: Mapping[str, float] | None = None, **more: Any) -> Recording:
    return recording({0: plan(STEPS, **(host or HOST))}, gpu_steps={0: gpu_steps([gpu] * STEPS)}, **more)


def paced(made: Recording, known: CallSites | None = None, missing: dict[str, str] | None = None) -> dict[str, float]:
    steady = steady_steps(all_steps(made))
    found = pace_values(made, steady, known or CallSites())
    if missing is not None:
        missing.update({name: why for (name, _), why in found.missing.items()})
    return {name: round(value, 6) for (name, _), value in found.items()}


def wait(phase: str, seconds: float) -> Wait:
    return Wait(0, "item", "/job/train.py", 88, "train", "", phase, 1.0, 1.0, seconds)


def test_a_gpu_that_keeps_up_goes_at_the_hosts_pace() -> None:
    found = paced(job({"input_wait": 4, "forward": 20, "backward": 30, "optimizer": 5, "gap": 1}))
    assert found == {"gpu.idle_input_s": 0.004, "gpu.idle_gap_s": 0.001, "gpu.host_paced_s": 0.055}


def test_a_gpu_that_falls_behind_sets_its_own_pace() -> None:
    found = paced(job({"input_wait": 4, "forward": 60, "backward": 120, "optimizer": 5, "gap": 0}))
    assert found["gpu.host_paced_s"] == 0.0 and found["gpu.idle_input_s"] == 0.004


def test_a_phase_that_catches_up_counts_for_what_it_had_nothing_queued() -> None:
    # behind by 10 ms after the forward pass; the backward takes the host 30 and the GPU 20
    found = paced(job({"input_wait": 4, "forward": 30, "backward": 20, "optimizer": 5, "gap": 1}))
    assert found["gpu.host_paced_s"] == pytest.approx(0.020 + 0.005)


def test_a_queue_that_never_runs_dry_is_nobodys_pace_but_the_gpus() -> None:
    assert (
        paced(job({"input_wait": 0, "forward": 20, "backward": 30, "optimizer": 5, "gap": 0}))["gpu.host_paced_s"]
        == 0.0
    )


@pytest.mark.parametrize(("every", "paced_s"), [(1, 0.0506), (2, 0.0)])
def test_a_gpu_that_idled_a_step_ago_is_no_farther_behind_than_its_times_say(every: int, paced_s: float) -> None:
    """Every other step ends 6 ms behind, 5 of which the fetch makes up for. `every`: of the steps without idling, these have events."""
    idled = {"input_wait": 4, "forward": 20, "backward": 30, "optimizer": 11, "gap": 1}
    behind = {"input_wait": 0, "forward": 19, "backward": 30, "optimizer": 5, "gap": 0}
    rows = [{**(behind if n % 2 else idled), "step": n} for n in range(STEPS) if n % 2 or every == 1]
    found = paced(recording({0: plan(STEPS, **HOST)}, gpu_steps={0: gpu_steps(rows)}))
    assert found["gpu.host_paced_s"] == pytest.approx(paced_s, abs=0.0005)


def test_a_wait_for_the_gpu_is_no_launching() -> None:
    kept_up = job({"input_wait": 4, "forward": 20, "backward": 30, "optimizer": 5, "gap": 1})
    assert paced(kept_up, CallSites((wait("forward", 0.012),)))["gpu.host_paced_s"] == pytest.approx(0.035)
    assert paced(kept_up, CallSites((wait("forward", 0.001),)))["gpu.host_paced_s"] == pytest.approx(0.055)
    assert paced(kept_up, CallSites((wait("clip", 0.004),)))["gpu.host_paced_s"] == pytest.approx(0.050)


def test_a_copy_that_holds_the_host_is_no_launching() -> None:
    held = HostCopy(0, "to", "/job/train.py", 61, 77.0, False, False, False, "forward", 0.008, 0.008)
    kept_up = job({"input_wait": 4, "forward": 20, "backward": 30, "optimizer": 5, "gap": 1})
    assert paced(kept_up, CallSites((), (held,)))["gpu.host_paced_s"] == pytest.approx(0.047)


def test_the_facts_show_where_the_gpus_time_goes() -> None:
    abreast = job({"input_wait": 4, "forward": 20, "backward": 30, "optimizer": 5, "gap": 1})
    idle = analyse(abreast).facts["gpu_idle"]
    assert idle == {"0": {"input_ms": 4.0, "between_steps_ms": 1.0, "at_the_hosts_pace_ms": 55.0}}
    assert "gpu_idle" not in analyse(recording({0: plan(STEPS)})).facts


def test_idle_time_after_evaluation_or_a_checkpoint_is_not_the_gaps() -> None:
    steps = [step(**HOST, **({"checkpoint": 50} if n % 4 == 0 else {})) for n in range(STEPS)]
    gpu = [{**HOST, "gap": 51 if n % 4 == 1 else 1} for n in range(STEPS)]
    assert paced(recording({0: steps}, gpu_steps={0: gpu_steps(gpu)}))["gpu.idle_gap_s"] == 0.001


def test_kernels_queued_after_the_update_are_no_idle_time() -> None:
    """Averages of weights keep the GPU busy for 12 ms after each update; the host queues them in 1 ms."""
    averaging = {"input_wait": 0, "forward": 20, "backward": 25, "optimizer": 5, "gap": 12}
    assert paced(job(averaging))["gpu.idle_gap_s"] == 0.001


@pytest.mark.parametrize(
    ("resident", "idle"),
    [
        pytest.param(None, 0.010, id="nobody saw whether a kernel ran"),
        pytest.param(0.5, 0.010, id="more is idle than the gap"),
        pytest.param(0.85, 0.005, id="of 9 ms without a kernel the fetch has 4"),
        pytest.param(0.99, 0.0, id="all of it is the fetch's"),
    ],
)
def test_the_gap_idles_no_more_than_there_was_no_kernel(resident: float | None, idle: float) -> None:
    """Steps of 60 ms: 4 for a batch, 10 between steps in which the host queues kernels as well."""
    values = {("step.time_s", "job"): 0.060, ("gpu.idle_gap_s", 0): 0.010, ("gpu.idle_input_s", 0): 0.004}
    if resident is not None:
        values["gpu.util_share", 3] = resident
    found = gaps_as_seen(Measured(values), Measured(values), [Gpu(3, "A100", ranks=(0,)), Gpu(1, "A100")])
    assert {**values, **found}["gpu.idle_gap_s", 0] == pytest.approx(idle)


def test_of_several_gpus_the_one_that_idles_most_counts() -> None:
    values = {("step.time_s", "job"): 0.060, ("gpu.idle_gap_s", 0): 0.010}
    values |= {("gpu.util_share", n): share for n, share in enumerate((0.95, 0.9, 1.0))}
    assert gaps_as_seen(Measured(values), Measured(values), [Gpu(n, "A100", ranks=(0,)) for n in range(3)]) == {
        ("gpu.idle_gap_s", 0): pytest.approx(0.006)
    }


@pytest.mark.parametrize(("idle_ms", "paced_s"), [(4, 0.055), (1.9, 0.0), (0.1, 0.0)])
def test_of_several_batches_the_gpu_must_have_idled_at_each_fetch(idle_ms: float, paced_s: float) -> None:
    """Their phases are sums. A GPU that is behind at one fetch idles less than the host takes for all of them."""
    found = paced(job({**HOST, "input_wait": idle_ms}, {**HOST, "micro_batches": 4}))
    assert found["gpu.host_paced_s"] == pytest.approx(paced_s)


def test_without_events_nothing_is_measured() -> None:
    missing: dict[str, str] = {}
    assert paced(recording({0: plan(STEPS)}, facts={100: {"cuda": {"name": "A100"}}}), missing=missing) == {}
    assert missing.keys() == {"gpu.idle_input_s", "gpu.idle_gap_s", "gpu.host_paced_s"}


@pytest.mark.parametrize("traced", [True, False])
def test_each_step_of_a_trace_shows_the_pace(traced: bool) -> None:
    made = job({"input_wait": 50, "forward": 100, "backward": 200})
    made.steps[0]["flags"] |= FLAG_TRACED if traced else 0
    few = {rank: table[:3] for rank, table in made.gpu_steps.items()}
    found = paced(replace(made, gpu_steps=few))
    assert bool(found) is traced


@pytest.mark.parametrize(("behind_ms", "pace"), [(0.0, 0.3), (1000.0, 0.0)])
def test_a_trace_shows_how_far_the_gpu_is_behind_when_a_step_begins(behind_ms: float, pace: float) -> None:
    """No fetch and no gap: without it, the events do not show whether the stream has run dry."""
    made = job({"forward": 100, "backward": 200}, {"input_wait": 0, "forward": 100, "backward": 200, "optimizer": 0})
    rows = made.gpu_steps[0]
    names = [*rows.dtype.names, BEHIND]
    traced = np.zeros(rows.size, np.dtype([(name, np.int64) for name in names]))
    for name in rows.dtype.names:
        traced[name] = rows[name]
    traced[BEHIND] = round(behind_ms * 1e6)
    assert paced(replace(made, gpu_steps={0: traced}))["gpu.host_paced_s"] == pytest.approx(pace, abs=0.02)
