"""Communication between the ranks in a step: bytes, wire, exchanges, and why one of them is unknown."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recordings import plan, recording, table
from rn50_advisor.advisor.analysis.comm.exchange_values import wire_values
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS

EXACT = 1e-9


def test_gradient_bytes_are_those_of_the_largest_model_wrapped() -> None:
    ddp = {
        rank: {"ddp": [{"total_parameter_size_bytes": 1e6}, {"total_parameter_size_bytes": 100e6}]} for rank in (0, 1)
    }
    facts = {100 + rank: known for rank, known in ddp.items()}
    assert analyse(recording({0: plan(), 1: plan()}, facts=facts)).value("comm.megabytes") == pytest.approx(100.0)
    assert not analyse(recording({0: plan(), 1: plan()})).has("comm.megabytes")


def test_without_ddp_communication_is_missing_and_not_zero() -> None:
    analysis = analyse(recording({0: plan(), 1: plan(30, forward=80)}, ddp=False))
    for name in ("comm.wire_s", "comm.skew_s", "comm.late_share"):
        assert not analysis.has(name)
    assert "DistributedDataParallel" in analysis.missing["comm.wire_s"]
    assert all("comm_exposed" not in phases for phases in analysis.budget.per_rank.values())
    assert analysis.budget.critical == analysis.budget.per_rank[1], "the longest step"


def test_one_rank_has_nothing_to_communicate() -> None:
    analysis = analyse(recording({0: plan()}))
    assert not analysis.has("comm.wire_s") and "one rank" in analysis.missing["comm.wire_s"]
    assert analysis.excess == {} and analysis.ranks[0].late_share is None


def accumulating(batches: int = 4, *, counted: int = 4, wire_ms: float = 10.0) -> Recording:
    """Two ranks whose steps are of several batches; DDP counts so many iterations in each, and stamps one of them."""
    own = plan(40, backward=80 + (counted - 1) * wire_ms, micro_batches=batches, samples=8 * batches)
    made = recording({0: own, 1: own}, wire_ms=wire_ms, facts=sharing(2))
    for rows in made.comm.values():
        rows["iteration"] *= counted
    return made


def sharing(ranks: int) -> dict[int, dict[str, Any]]:
    """Facts of two ranks whose model of 100 MB is shared by so many."""
    return {100 + rank: {"ddp": [{"world_size": ranks, "total_parameter_size_bytes": 100_000_000}]} for rank in (0, 1)}


def test_gradients_that_are_exchanged_after_each_micro_batch_are_waited_for_each_time() -> None:
    analysis = analyse(accumulating())
    assert analysis.value("comm.exchanges") == 4
    assert analysis.value("comm.wire_s") == pytest.approx(0.040)
    assert analysis.budget.critical["backward"] == pytest.approx(0.080)
    assert analysis.value("comm.megabytes") == pytest.approx(400.0)
    assert sum(analysis.budget.critical.values()) == pytest.approx(analysis.value("step.time_s"))


@pytest.mark.parametrize(
    ("batches", "counted"),
    [pytest.param(4, 1, id="under no_sync"), pytest.param(1, 2, id="a model that is asked twice for each batch")],
)
def test_one_exchange_is_counted_once(batches: int, counted: int) -> None:
    analysis = analyse(accumulating(batches, counted=counted))
    assert analysis.value("comm.exchanges") == 1
    assert analysis.value("comm.wire_s") == pytest.approx(0.010)


def test_ranks_out_of_sight_may_be_what_the_others_wait_for() -> None:
    own = plan(40)
    seen, partly = (analyse(recording({0: own, 1: own}, wire_ms=30, facts=sharing(n))) for n in (2, 4))
    assert seen.value("comm.wire_s") == pytest.approx(0.030)
    assert not any(partly.has(name) for name in ("comm.wire_s", "comm.span_s", "comm.bus_gb_per_s"))
    assert "2 of 4 ranks" in partly.missing["comm.wire_s"]
    assert partly.value("comm.skew_s") == pytest.approx(0.0, abs=EXACT), "they do not wait for each other"
    (capacity,) = [c for c in partly.capacities if c.stage == "communication"]
    assert capacity.samples_per_s is None and "2 of 4 ranks" in capacity.basis
    alone = analyse(recording({0: own}, facts=sharing(4)))
    assert "1 of 4 ranks" in alone.missing["comm.wire_s"]


def test_stamps_of_one_rank_alone_cannot_separate_the_wire_from_waiting() -> None:
    made = recording({0: plan(), 1: plan(30, forward=80)}, wire_ms=5)
    analysis = analyse(replace(made, comm={0: made.comm[0]}))
    assert not analysis.has("comm.wire_s") and "not timed in the same steps" in analysis.missing["comm.wire_s"]
    assert analysis.by_rank("comm.exposed_s") == {0: pytest.approx(0.055)}


def over_links(hook: str = "", *, ranks: int = 4, **given: Any) -> dict[str, float]:
    """Values of the job: 100 MB in buckets of 20 and 80, which `ranks` share; 0.05 s a step on the wire."""
    ddp = {"world_size": ranks, "total_parameter_size_bytes": 100e6, "bucket_bytes": [20e6, 80e6], "comm_hook": hook}
    made = recording({0: plan(), 1: plan()}, wire_ms=50, facts={100: {"ddp": [ddp]}})
    for rows in made.comm.values():
        rows["overlap_ns"] = 30_000_000
    seconds: dict[str, Any] = {"wire_s": 0.05, "span_s": None, **given}
    found = wire_values(made, steady_steps(all_steps(made)), **seconds)
    assert found.by_rank("comm.hidden_s") == dict.fromkeys((0, 1), pytest.approx(0.030 * given.get("exchanges", 1)))
    return {name: value for (name, scope), value in found.items() if scope == "job"}


@pytest.mark.parametrize(
    ("given", "megabytes", "rate"),
    [
        ({}, 100.0, 3.0),  # 2 (N-1)/N of 0.1 GB in 0.05 s
        ({"ranks": 2}, 100.0, 2.0),
        ({"exchanges": 2}, 200.0, 6.0),
        ({"hook": "bf16_compress_hook"}, 50.0, 1.5),
        ({"span_s": 0.1}, 100.0, 1.5),  # most of it beside the backward pass
        ({"wire_s": None}, 100.0, None),
        ({"hook": "powerSGD_hook"}, None, None),  # nobody knows how much it sends
    ],
)
def test_bytes_and_rate_are_those_that_each_link_carries(
    given: dict[str, Any], megabytes: float | None, rate: float | None
) -> None:
    found = over_links(**given)
    assert found.get("comm.megabytes") == (None if megabytes is None else pytest.approx(megabytes))
    assert found.get("comm.bus_gb_per_s") == (None if rate is None else pytest.approx(rate))
    assert (found["comm.buckets"], found["comm.largest_bucket"]) == (2.0, pytest.approx(0.8))


def test_without_ddp_links_carry_what_python_exchanges() -> None:
    rows = [{"step": n, "calls": 1, "bus_bytes": 50_000_000} for n in range(30)]
    calls = dict.fromkeys((0, 1), table((*COLLECTIVES_FIELDS, "flags"), rows))
    made = recording({0: plan(), 1: plan()}, ddp=False, collectives=calls)
    found = wire_values(made, steady_steps(all_steps(made)), wire_s=0.05, span_s=0.5)
    assert dict(found) == {("comm.bus_gb_per_s", "job"): pytest.approx(1.0)}
    assert dict(wire_values(made, steady_steps(all_steps(made)), wire_s=None, span_s=None)) == {}
