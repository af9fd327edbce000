"""COM009, NCCL runs over sockets: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import rule_cases as jobs
from comm_rule_cases import TWO_HOSTS, com009, wrapped
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, NotMeasured
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge, run_rule
from rn50_advisor.rules.registry import all_rules
from rule_cases import rank
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks

TABLE = Table(
    "COM009",
    com009,
    lines={"wire": ({"wire": 0.05}, {"wire": 0.0499}), "card": ({"card": 24.9}, {"card": 25.0})},
    false_alarms={"ranks that NCCL connects by InfiniBand": {"socket": 0.0}},
    severities=(({"wire": 0.4}, "critical"), ({"wire": 0.2}, "high"), ({"wire": 0.07}, "medium")),
    best=({"wire": 0.4}, 1 / 0.68),
    also_fires={"bytes that are known": {"carried": 1.25}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def on_card(gbit: float | None = 10.0, *, ports: int | None = 0, backend: str = "nccl", **more: Any) -> Analysis:
    """Ranks of two hosts without NCCL's log."""
    environment = {} if ports is None else {"rdma_ports": ports}
    values = {} if gbit is None else {"net.gbit_per_s": gbit}
    own = {n: rank(0.6) for n in (0, 1)}
    hosts = more.pop("hosts", TWO_HOSTS)
    given = wrapped(own, values={"comm.wire_s": 0.4, **values, **more}, hosts=hosts, backend_name=backend)
    return replace(given, meta=replace(jobs.META, environment=environment))


def test_a_slow_card_between_the_hosts_is_found_without_nccls_log() -> None:
    finding = found("COM009", on_card(24.9, **{"comm.bus_gb_per_s": 1.25}))
    assert (finding.evidence[0].value, finding.evidence[0].threshold) == (24.9, 25.0)
    assert finding.saving is not None  # 0.5 GB at 12.5 GB/s; at half of it, and a message's latency
    assert finding.saving.seconds_per_step == pytest.approx((0.4 - 0.08 - 0.002, 0.4 - 0.04))
    judgement = judge(on_card(10.0), all_rules(), Config())
    by = {f.rule: f.explained_by for f in judgement.findings if f.rule.startswith("COM")}
    assert by == {"COM009": None, "COM001": "COM009"}


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        (on_card(25.0), Clear("COM009")),
        (on_card(10.0, ports=2), NotMeasured("COM009", ("nccl.socket",))),  # InfiniBand that NCCL may use
        (on_card(10.0, ports=None), NotMeasured("COM009", ("nccl.socket",))),  # unknown
        (on_card(None), NotMeasured("COM009", ("nccl.socket",))),
        (on_card(10.0, backend="gloo"), NotMeasured("COM009", ("nccl.socket",))),
        (on_card(10.0, hosts={"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}), NotMeasured("COM009", ("nccl.socket",))),
        (on_card(10.0, **{"nccl.socket": 0.0}), Clear("COM009")),  # NCCL's log names another transport
    ],
)
def test_a_card_is_blamed_only_if_it_connects_the_hosts(given: Analysis, outcome: Any) -> None:
    assert run_rule(RULES["COM009"], given, Config()) == outcome


def test_switches_that_keep_nccl_from_infiniband_come_first() -> None:
    analysis = com009(wire=0.4, switches={"NCCL_IB_DISABLE": "1"})
    assert found("COM009", analysis).fixes[0].change == "unset NCCL_IB_DISABLE"
    by_environment = replace(jobs.META, environment={"variables": {"NCCL_NET": "Socket"}})
    assert found("COM009", replace(com009(wire=0.4), meta=by_environment)).fixes[0].change == "unset NCCL_NET"


def test_a_known_rate_bounds_the_gain_of_a_faster_network() -> None:
    saving = found("COM009", com009(wire=0.4, carried=1.25)).saving
    assert saving is not None and saving.seconds_per_step[1] == pytest.approx(0.4 * 0.9)
