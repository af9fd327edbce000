"""Compute time on GPUs, idle time that the host could hide, and the optimizers that have a fused form."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import pace_rule_cases as pace_jobs
from pace_rule_cases import stepped_by
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_UTIL_SHARE
from rn50_advisor.rules.compute.compute_cost import (
    batch_size,
    computing_s,
    convolves,
    exposed_if,
    fused_form,
    hidden_s,
    if_computed_faster,
    if_not_held,
    link_of,
    loading_floor_s,
    on_gpu_of,
    restarting_s,
    step_sparing,
    timing_source,
    torch_version,
    without_waiting,
)
from rule_cases import job, rank
from rule_runs import all_words, found
from rule_tables import TABLES


@pytest.mark.parametrize(
    ("name", "torch", "offered"),
    [
        ("Adam", "2.0.1", True),
        ("AdamW", "1.13.1", False),
        ("SGD", "2.3.0", True),
        ("SGD", "2.2.2", False),
        ("Adagrad", "2.11.0", False),  # on CUDA it raises
        ("Adagrad", "2.12.0", True),
        ("RMSprop", "2.12.0", False),
        ("AdamW", "", False),
    ],
)
def test_a_fused_optimizer_is_offered_where_its_torch_has_it(name: str, torch: str, offered: bool) -> None:
    given = stepped_by(name, torch)
    launches = all_words(found("CMP003", TABLES["CMP003"].job(rank_facts=given)))
    switches = all_words(found("CMP009", TABLES["CMP009"].job(optimizer=0.1, rank_facts=given)))
    sites = CallSites(pace_jobs.waits(through="torch.amp.grad_scaler"))
    scaler = all_words(found("CMP004", TABLES["CMP004"].job(rank_facts=given, call_sites=sites)))
    fused = f"{name}(..., fused=True)"
    assert [fused in words for words in (launches, switches, scaler)] == [offered, offered, offered and name != "SGD"]


@pytest.mark.parametrize(("momentum", "offered"), [(None, False), (1, False), (0, True)])
def test_momentum_beside_a_gradient_scaler_is_not_fused(momentum: int | None, offered: bool) -> None:
    sites = CallSites(pace_jobs.waits(through="torch.amp.grad_scaler"))
    given = stepped_by("SGD", momentum=momentum)
    assert (
        "fused=True"
        in all_words(found("CMP009", TABLES["CMP009"].job(optimizer=0.1, rank_facts=given, call_sites=sites)))
    ) is offered
    assert (
        "fused=True" in all_words(found("CMP003", TABLES["CMP003"].job(rank_facts=given, call_sites=sites)))
    ) is offered


@pytest.mark.parametrize("rule", ["CMP005", "CMP006"])
def test_a_batch_is_judged_by_a_benchmark_in_as_many_words(rule: str) -> None:
    own = pace_jobs.cmp005() if rule == "CMP005" else pace_jobs.cmp006()
    swept = replace(own, values={**own.values, ("batch.benchmarked", 0): 1.0})
    for given, benchmarked in ((own, False), (swept, True)):
        assert ("a benchmark of this machine" in found(rule, given).evidence[0].note) is benchmarked


@pytest.mark.parametrize(
    ("torch", "version"),
    [("2.8.0+cu128", (2, 8)), ("2.12", (2, 12)), ("", (0, 0)), ("nightly", (0, 0)), (None, (0, 0))],
)
def test_an_unknown_torch_counts_as_old(torch: str | None, version: tuple[int, int]) -> None:
    assert torch_version({"torch": torch}) == version  # type: ignore[typeddict-item]


def test_an_optimizer_that_is_fused_has_no_other_form() -> None:
    def form(**optimizer: Any) -> str:
        return fused_form(pace_jobs.paced({}, rank_facts={"torch": "2.8.0", "optimizer": optimizer}), 0)

    assert form(**{"class": "AdamW"}) == "AdamW" and form(**{"class": "AdamW", "fused": True}) == ""
    assert form(**{"class": "Lion"}) == "" and form() == ""
    assert form(**{"class": "AdamW", "module": "torch.optim.adamw"}) == "AdamW"
    assert form(**{"class": "AdamW", "module": "transformers.optimization"}) == ""


@pytest.mark.parametrize(
    ("facts", "found"),
    [
        ({"model": {"layers": {"Conv2d": 53, "Linear": 1}}}, True),
        ({"model": {"layers": {"Linear": 12}}}, False),
        ({"optimizer": {"convolutions": {"weights": 53}}}, True),
        ({"optimizer": {"convolutions": {"weights": 0}}}, False),
        ({}, None),
    ],
)
def test_a_model_convolves_by_its_layers_or_its_weights(facts: Any, found: bool | None) -> None:
    assert convolves(facts) is found


def test_only_compute_at_the_gpus_pace_becomes_faster() -> None:
    """Forward and backward take 0.9 s, of these 0.3 at the pace of launches."""
    a = pace_jobs.paced({"gpu.host_paced_s": 0.3})
    assert computing_s(a, 0) == pytest.approx(0.6)
    assert if_computed_faster(a, {0: 0.5, 1: 0.5}, hopeful=True) == pytest.approx(0.7)
    assert if_computed_faster(a, {0: 0.5}, hopeful=True) == pytest.approx(1.0), "the other rank takes as long as before"
    assert computing_s(pace_jobs.paced({"gpu.host_paced_s": 2.0}), 0) == 0.0


def test_no_step_outruns_loading() -> None:
    """Loading supplies 1.25 batches a second."""
    a = pace_jobs.paced({}, loads=1.25)
    assert loading_floor_s(a, hopeful=False) == pytest.approx(0.8)
    assert if_computed_faster(a, {0: 0.1, 1: 0.1}, hopeful=False) == pytest.approx(0.8)
    assert loading_floor_s(pace_jobs.paced({}, loads=0.5), hopeful=False) == 1.0, "today's step at most"
    assert loading_floor_s(pace_jobs.paced({}), hopeful=False) == 0.0
    wide = replace(a, capacities=(replace(a.capacities[0], hi=32.0),))
    assert loading_floor_s(wide, hopeful=True) == pytest.approx(0.5)
    made = replace(a.capacities[0], samples_per_s=32.0, hi=32.0)
    in_turn = replace(a, capacities=(made, replace(made, stage="storage")))
    assert loading_floor_s(in_turn, hopeful=False) == pytest.approx(1.0), "a worker reads a batch and then makes it"
    assert loading_floor_s(in_turn, hopeful=True) == pytest.approx(0.5)
    other = replace(a, capacities=(replace(a.capacities[0], stage="compute"),))
    assert loading_floor_s(other, hopeful=True) == 0.0


def test_no_step_outruns_the_launches_of_its_host() -> None:
    a = pace_jobs.paced({"gpu.host_step_s": 0.6})
    assert if_computed_faster(a, {0: 0.1, 1: 0.1}, hopeful=True) == pytest.approx(0.6)
    slow = pace_jobs.paced({"gpu.host_step_s": 3.0})
    assert if_computed_faster(slow, {0: 0.1, 1: 0.1}, hopeful=True) == pytest.approx(1.0), "today's step at most"


def idling(loads: float | None = None) -> Analysis:
    """The GPU idles for 0.1 s between steps and 0.2 s while a batch is fetched."""
    values = {"gpu.idle_gap_s": 0.1, "gpu.idle_input_s": 0.2}
    return pace_jobs.paced(values, own=rank(gap=0.1, input_wait=0.2), loads=loads)


@pytest.mark.parametrize(
    ("loads", "blocked_s", "hidden"),
    [
        (None, 0.5, 0.3),
        (None, 0.05, 0.05),  # no more than the host was held
        (1.25, 0.5, 0.3),  # a batch comes each 0.8 s: soon enough
        (1.24, 0.5, 0.1),  # waiting for the loader remains
    ],
)
def test_idle_time_is_hidden_as_far_as_the_host_was_held_and_batches_come(
    loads: float | None, blocked_s: float, hidden: float
) -> None:
    assert hidden_s(idling(loads), 0, blocked_s) == pytest.approx(hidden)


def test_what_is_hidden_is_taken_from_the_gap_and_then_from_the_input_wait() -> None:
    assert if_not_held(idling(), {0: 0.15, 1: 0.25}, hopeful=True) == pytest.approx(0.85)
    assert if_not_held(idling(), {0: 9.0, 1: 9.0}, hopeful=True) == pytest.approx(0.7)


def test_launches_in_the_passes_are_hidden_apart_from_what_is_between_steps() -> None:
    a = idling()
    launching = {0: 0.2, 1: 0.2}
    assert if_not_held(a, {0: 0.1, 1: 0.1}, hopeful=True, launching=launching) == pytest.approx(0.7)
    assert if_not_held(a, {0: 9.0, 1: 9.0}, hopeful=True, launching=launching) == pytest.approx(0.5)


@pytest.mark.parametrize(("blocked_s", "hidden"), [(0.5, 0.16), (0.1, 0.1), (-0.1, 0.0)])
def test_the_gpu_idles_between_launches_for_no_longer_than_kernels_leave_and_the_host_was_blocked(
    blocked_s: float, hidden: float
) -> None:
    a = pace_jobs.paced({"gpu.host_paced_s": 0.25, "step.run_delay_s": 0.05})
    assert restarting_s(a, 0, blocked_s) == pytest.approx(hidden)


@pytest.mark.parametrize(
    ("wire_s", "span_s", "buckets", "share", "exposed_s"),
    [
        (0.02, 0.5, 5.0, 0.5, 0.02),  # the wire is idle for most of the backward pass
        (0.05, 0.5, 10.0, 1.0, 0.05),
        (0.05, 0.5, 10.0, 0.5, 0.275),  # 0.5 s on the wire, of which half the backward pass hides 0.225
        (0.2, 0.5, 10.0, 0.5, 0.35),  # no more than from the first bucket to the last
        (0.05, None, None, 0.1, 0.05),
    ],
)
def test_a_faster_backward_pass_hides_less_of_the_exchange(
    wire_s: float, span_s: float | None, buckets: float | None, share: float, exposed_s: float
) -> None:
    known = {name: v for name, v in (("comm.span_s", span_s), ("comm.buckets", buckets)) if v is not None}
    a = job({0: rank(0.7), 1: rank(0.7)}, values=known, wire_s=wire_s)
    assert exposed_if(a, share) == pytest.approx(exposed_s)


def test_a_batch_is_the_loaders_and_not_the_steps() -> None:
    assert batch_size(pace_jobs.paced({"batch.samples": 64.0, "step.batches": 4.0})) == 16.0
    assert batch_size(pace_jobs.paced({"batch.samples": 64.0})) == 64.0
    assert batch_size(pace_jobs.paced({})) == 8.0


def test_times_of_a_benchmark_are_named_as_such() -> None:
    a = pace_jobs.paced({})
    swept = replace(a, values={**a.values, ("batch.benchmarked", 1): 1.0})
    assert timing_source(swept, (0, 1)) == " (a benchmark of this machine, with this model)"
    assert timing_source(swept, (0,)) == timing_source(a, (0, 1)) == ""


def test_a_link_that_is_not_known_is_taken_for_the_fastest() -> None:
    known = pace_jobs.paced({}, on_gpu={"gpu.pcie_gen": 4.0, "gpu.pcie_width": 8.0})
    assert link_of(known, 0) == (13_000.0, "PCIe 4 x8")
    assert link_of(pace_jobs.paced({}, on_gpu={"gpu.pcie_gen": 4.0}), 0) == (
        52_000.0,
        "PCIe 5 x16, the fastest link: the GPU's own is unknown",
    )
    assert link_of(known, 7)[0] == 52_000.0, "a rank on no GPU that was seen"


@pytest.mark.parametrize(
    ("call", "change"), [("to", ".to(device, non_blocking=True)"), ("copy_", ".copy_(batch, non_blocking=True)")]
)
def test_a_copy_is_shown_as_it_would_be_written(call: str, change: str) -> None:
    fix = without_waiting("do not wait", call, Where("t.py", 3))
    assert (fix.change, fix.effort, fix.where) == (change, "one line", Where("t.py", 3))
    assert str(fix.call) == f"{call}(..., non_blocking=True)"


def test_a_value_of_a_gpu_is_that_of_the_rank_on_it() -> None:
    a = pace_jobs.paced({}, on_gpu={"gpu.util_share": 0.5})
    assert on_gpu_of(a, 1, GPU_UTIL_SHARE) == 0.5 and on_gpu_of(a, 7, GPU_UTIL_SHARE) is None


def test_seconds_of_phases_are_spared_on_the_slowest_rank_and_no_more_than_there_are() -> None:
    two = job({0: rank(forward=0.3, backward=0.6, optimizer=0.1), 1: rank(forward=0.2, backward=0.4, optimizer=0.1)})
    assert step_sparing(two, {(0, "backward"): 0.2, (0, "forward"): 0.1}, hopeful=True) == pytest.approx(0.7)
    assert step_sparing(two, {(0, "backward"): 9.0}, hopeful=True) == pytest.approx(0.7), "the other rank"
    assert step_sparing(two, {(7, "backward"): 1.0}, hopeful=True) == pytest.approx(1.0), "a rank without an account"
