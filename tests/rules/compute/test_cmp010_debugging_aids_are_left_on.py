"""CMP010, debugging aids are left on: its table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.rules.causes import is_cause
from rule_cases import job, rank
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks


def cmp010(
    on: Mapping[str, int] | None = None, *, looks: int = 10, rank_1: int = 10, cuda: bool = True, **more: Any
) -> Analysis:
    """Checks of rank 0 that found these aids on; on rank 1 anomaly detection, in `rank_1` of ten."""
    facts = {
        "debugging": {"looks": looks, "on": {"anomaly detection": 10} if on is None else on},
        "cuda": {"devices": 1} if cuda else None,
    }
    other = {"debugging": {"looks": 10, "on": {"anomaly detection": rank_1}}}
    return job({0: rank(), 1: rank()}, **{"facts": {"0": facts, "1": other}, **more})


TABLE = Table(
    "CMP010",
    cmp010,
    lines={"looks": ({"on": {"profiler": 9}, "rank_1": 0}, {"on": {"profiler": 8}, "rank_1": 0})},
    false_alarms={
        "nothing is on": {"on": {}, "rank_1": 0},
        "a profiler with a schedule": {"on": {"profiler": 5}, "rank_1": 0},
        "what only slows GPUs, where there is none": {
            "on": {"CUDA_LAUNCH_BLOCKING": 10},
            "rank_1": 0,
            "cuda": False,
        },
        "an unknown aid": {"on": {"another": 10}, "rank_1": 0},
    },
    severities=(({}, "medium"), ({"on": {"TORCH_DISTRIBUTED_DEBUG": 10}, "rank_1": 0}, "low")),
    also_fires={
        "a trace of allocations": {"on": {"tracemalloc": 10}, "rank_1": 0},
        "launches that wait": {"on": {"CUDA_LAUNCH_BLOCKING": 10}, "rank_1": 0},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def priced(
    nodes: float | None = 1000.0,
    *,
    backward: float = 0.5,
    seen: float | None = None,
    elements: float | None = None,
    **more: Any,
) -> Finding:
    """Of a rank alone on a CPU, whose steps of a second have so many operations."""
    facts = {"0": {"debugging": {"looks": 10, "on": {"anomaly detection": 10}}}}
    known = {"step.operations": nodes, "step.tracebacks_s": seen, "step.searched_elements": elements}
    values = {name: {0: value} for name, value in known.items() if value is not None}
    own = {0: rank(forward=1.0 - backward, backward=backward)}
    return found("CMP010", job(own, facts=facts, values=values, **more))


def test_anomaly_detection_costs_a_time_for_each_operation_and_a_share_of_the_backward_pass() -> None:
    finding = priced()
    assert finding.saving is not None
    # 40 and 20 us for each of 1000 operations and a tenth of the rest; at best 110 and 50 us and 60 %
    assert finding.saving.seconds_per_step == pytest.approx((0.04 + 0.02 + 0.048, 0.11 + 0.05 + 0.6 * 0.45))
    assert (finding.severity, finding.seconds_per_step) == ("high", pytest.approx(0.269, abs=0.001))
    assert finding.evidence[1].value == 1000 and "cost" not in finding.evidence[0].note
    many = priced(20_000.0).saving
    assert many is not None and many.seconds_per_step[1] == pytest.approx(0.9), "never more than most of a phase"
    few = priced(1.0, backward=0.1)
    assert few.severity == "medium" and few.saving is not None


def test_what_the_run_shows_of_anomaly_detection_is_its_cost() -> None:
    finding = priced(seen=0.1, elements=1e8)
    assert finding.saving is not None
    # at best 1.3 times what samples saw and 70 us for each of 1000 operations, 1.1 ns for each element and 8 us for each operation
    at_best = 1.3 * 0.1 + 0.07 + 0.11 + 0.008
    assert finding.saving.seconds_per_step == pytest.approx((0.1 + 0.06 + 0.003, at_best))
    assert [(e.metric, e.value) for e in finding.evidence[2:]] == [
        ("step.tracebacks_s", 0.1),
        ("step.searched_elements", 1e8),
    ]
    unsampled = priced(seen=0.0, elements=1e8).saving
    assert unsampled is not None and unsampled.seconds_per_step[0] == pytest.approx(0.04 + 0.06 + 0.003)


def test_without_the_number_of_operations_and_on_gpus_its_cost_is_not_known() -> None:
    for finding in (priced(None), found("CMP010", cmp010())):
        assert finding.saving is None and finding.seconds_per_step == 0.0
        assert "does not show its cost" in finding.evidence[0].note and "compare" in finding.fixes[0].change


@pytest.mark.parametrize(
    ("aid", "each"),
    [("tracer", True), ("tracemalloc", True), ("profiler", True), ("anomaly detection", False), ("NCCL_DEBUG", False)],
)
def test_what_works_at_each_call_explains_the_time_of_many_calls(aid: str, each: bool) -> None:
    finding = found("CMP010", cmp010({aid: 10}, rank_1=0))
    assert ("slows each call" in finding.circumstances) is each
    unfused, slow_loading = (replace(finding, rule=rule) for rule in ("CMP014", "DAT001"))
    assert is_cause(cmp010(), finding, unfused) is each
    assert not is_cause(cmp010(), finding, slow_loading)
