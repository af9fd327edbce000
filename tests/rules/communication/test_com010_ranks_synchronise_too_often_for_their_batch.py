"""COM010, ranks synchronise too often for their batch: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from comm_rule_cases import causes, com010, on_full_cores, rate_row
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.rules.communication.comm_cost import path_is_sound
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks

TABLE = Table(
    "COM010",
    com010,
    lines={
        "wire": ({"wire": 0.15, "span": 0.85}, {"wire": 0.1499, "span": 0.9}),
        "compute": ({"wire": 0.5}, {"wire": 0.499}),
    },
    false_alarms={
        "an exchange that the backward pass hides": {"wire": 0.02, "span": 0.9},
        "few steps that scatter": {"wire": 0.5, "comm.wire_error": 0.8},
    },
    severities=(({"wire": 0.5}, "critical"), ({"wire": 0.15, "span": 0.9}, "high")),
    # twice the batch: half of the exchange is spared, and half of the optimizer
    best=({"wire": 0.5}, warm(1 / 0.725)),
    also_fires={"a slow wire, which is the root then": {"carried": 0.1}, "bytes unknown": {"carried": None}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_com010_shows_the_rate_even_if_the_path_is_unknown() -> None:
    unknown = rate_row(replace(com010(wire=0.6, carried=1.2), facts={}), "COM010")
    assert unknown is not None and unknown.value == 1.2 and unknown.threshold is None


def test_many_small_messages_do_not_make_the_path_unsound() -> None:
    # 1 MB in two messages: 6 ms are their latency, and an exchange of 8 ms is what a sound path takes
    small = com010(wire=0.6, carried=0.02)
    quick = replace(small, values={**small.values, ("comm.wire_s", "job"): 0.008, ("comm.span_s", "job"): 0.008})
    assert path_is_sound(small) is False
    assert path_is_sound(replace(quick, values={**quick.values, ("comm.buckets", "job"): 3.0})) is True
    assert path_is_sound(quick) is False, "one message of as many bytes should be quicker"


def test_accumulation_pays_the_exchange_once() -> None:
    finding = found("COM010", com010(wire=0.75))
    # computing 0.25 s, the exchange 0.75: six batches bring it to half of the computing of each
    assert "over 6 batches" in finding.fixes[0].title
    assert finding.saving is not None
    # and a sixth of the update, which is a tenth of the computing
    assert finding.saving.speedup[1] == pytest.approx(warm(1 / (0.225 + (0.025 + 0.75) / 6)))


def test_where_cores_are_short_batches_that_are_not_exchanged_have_a_shorter_backward_pass() -> None:
    job = com010(wire=0.5, span=0.6)
    plain, short = (found("COM010", made).saving for made in (job, on_full_cores(job, burns_s=0.5)))
    assert plain is not None and short is not None
    after = 0.45 + (0.05 + 0.5) / 3
    assert plain.speedup[1] == pytest.approx(warm(1 / after))
    # 0.1 s of the exchange run beside the backward pass, and 0.5 / 0.6 of that is work
    assert short.speedup[1] == pytest.approx(warm(1 / (after - 0.1 * 0.5 / 0.6 * 2 / 3)))


def test_ranks_wait_for_each_other_once_in_several_batches() -> None:
    job = com010(wire=0.5)
    assert job.model is not None
    longer = {**job.values, ("step.time_s", "job"): 1.2}
    saving = found("COM010", replace(job, model=replace(job.model, step_s=1.2), values=longer)).saving
    after = 0.45 + (0.05 + 0.5) / 2 + 0.2 / 2**0.5 * (0.475 / 0.5)
    assert saving is not None and saving.speedup[1] == pytest.approx(warm(1.2 / after))


def averaged_by_hand(carried: float = 0.02, hand: float = 1.0, library: str = "") -> Analysis:
    """As `com010`, by sixty calls from one line of the script or of a library; `hand`: the share of their time after the backward pass."""
    job = com010(wire=0.6, carried=carried)
    site = {"file": "train.py", "line": 13, "ns": 1, "backend": "gloo", "kind": "all_reduce", "library": library}
    facts = {
        name: {**{k: v for k, v in of_rank.items() if k != "ddp"}, "collectives": [site]}
        for name, of_rank in job.facts.items()
    }
    values = {name: value for name, value in job.values.items() if name[0] != "comm.buckets"}
    values |= {("collectives.by_hand_s", "job"): 0.6 * hand}
    for n in (0, 1):
        values |= {("collectives.calls", n): 60.0, ("collectives.megabytes", n): 600.0 * carried}
    return replace(job, facts=facts, values=values)


def test_gradients_averaged_tensor_by_tensor_get_the_advice_to_use_buckets() -> None:
    finding = found("COM010", averaged_by_hand())
    assert finding.fixes[0].title.startswith("wrap the model in DistributedDataParallel")
    assert finding.fixes[0].where == Where("train.py", 13)
    assert not any("no_sync" in fix.title + fix.change for fix in finding.fixes), "only the wrapper has it"
    assert finding.saving is not None
    # 12 MB in one message instead of 60; at worst they take their time over a sound path, too
    left = 0.6 / 60
    assert finding.saving.speedup == pytest.approx((1 / (0.4 + left + 0.012 / 0.3), 1 / (0.4 + left)), rel=0.01)


def test_where_bytes_take_the_time_fewer_messages_are_not_the_fix() -> None:
    finding = found("COM010", averaged_by_hand(carried=0.28))
    assert finding.fixes[0].title.startswith("accumulate gradients")


@pytest.mark.parametrize(
    "given", [{"hand": 0.7}, {"library": "deepspeed"}], ids=["calls within the model", "a library's calls"]
)
def test_other_calls_than_averaging_by_hand_are_not_replaced(given: dict[str, Any]) -> None:
    titles = [fix.title for fix in found("COM010", averaged_by_hand(**given)).fixes]
    assert not any("DistributedDataParallel" in title for title in titles)
    assert any("no_sync" in title for title in titles), "FSDP has it as well"


def test_the_gain_is_of_accumulating_and_a_larger_batch_has_its_own_fix() -> None:
    finding = found("COM010", TABLE.job())
    accumulating, larger = (fix.title for fix in finding.fixes[:2])
    assert "accumulate gradients over" in accumulating and "batch per rank" not in accumulating
    assert "times the batch per rank" in larger and finding.saving is not None
    assert "one exchange and one update" in finding.saving.basis


@pytest.mark.parametrize(("library", "fires"), [("FSDP", False), ("DeepSpeed", True)])
def test_sharded_parameters_are_gathered_for_each_batch_however_many_are_accumulated(library: str, fires: bool) -> None:
    sites = [{"library": library, "calls": 10, "bytes": 600, "ns": 1}]
    a = replace(com010(), facts={rank: {"collectives": sites} for rank in ("0", "1")})
    assert ("COM010" in causes(a)) is fires
