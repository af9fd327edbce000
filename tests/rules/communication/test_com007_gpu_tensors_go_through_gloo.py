"""COM007, GPU tensors go through gloo: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from comm_rule_cases import com007, com009, with_values
from rule_runs import found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "COM007",
    com007,
    lines={"wire": ({"wire": 0.03}, {"wire": 0.0299})},
    false_alarms={"ranks on CPUs, or by NCCL": {"gloo": 0.0}},
    severities=(({"wire": 0.4}, "critical"), ({"wire": 0.2}, "high"), ({"wire": 0.1}, "medium")),
    ranks=(0, 1),
    best=({"wire": 0.4}, 1 / 0.62),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_nccl_instead_of_gloo_by_the_bytes() -> None:
    given = with_values(com007(wire=0.4), comm_bus_gb_per_s=0.5)  # 200 MB
    saving = found("COM007", given).saving
    # between GPUs of one host 12 GB/s at best, 3 and a message's latency at worst
    assert saving is not None
    assert saving.speedup == pytest.approx((1 / (0.6 + 0.2 / 3 + 0.0005), 1 / (0.6 + 0.2 / 12)))
    apart = with_values(replace(given, facts=com009().facts), net_gbit_per_s=100.0)
    saving = found("COM007", apart).saving
    assert saving is not None
    assert saving.speedup == pytest.approx((1 / (0.6 + 0.2 / 6.25 + 0.002), 1 / (0.6 + 0.2 / 12.5)))
