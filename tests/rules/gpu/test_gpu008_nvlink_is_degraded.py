"""GPU008, NVLink is degraded: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import gpu_rule_cases as gpu_jobs
from gpu_rule_cases import gpu, on_gpus, on_two_hosts
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuPath
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rule_runs import RULES, found
from rule_table import Table
from table_checks import Check, checks


def gpu008(
    active: float = 9.0, peer: float = 12.0, recoveries: float = 0.0, damaged: float = 0.0, **more: Any
) -> Analysis:
    """GPU 1's links; on the wire the step loses 0.3 s."""
    values = {
        "gpu.nvlinks_active": {0: peer, 1: active},
        "gpu.nvlink_recoveries": {0: 0, 1: recoveries},
        "gpu.nvlink_crc_per_s": {0: 0, 1: damaged},
    }
    return on_gpus(values, **{"slow": 0.2, "wire_s": 0.3, **more})


TABLE = Table(
    "GPU008",
    gpu008,
    lines={
        "links": ({"active": 11}, {"active": 12}),
        "recoveries": ({"active": 12, "recoveries": 1}, {"active": 12, "recoveries": 0}),
        "damaged": ({"active": 12, "damaged": 100}, {"active": 12, "damaged": 99.9}),
    },
    false_alarms={
        "boards without bridge": {
            "active": 0,
            "peer": 0,
            "gpus": tuple(gpu(n, name="NVIDIA A100 80GB PCIe", nvlink_switched=None) for n in range(2)),
        },
        "the only GPU of a virtual machine": {"peer": 0, "gpus": (gpu(0, nvlink_switched=None),)},
        "older boards of which some links lead elsewhere": {
            "active": 4,
            "peer": 4,
            "gpus": tuple(gpu(n, name="Tesla V100-SXM2-16GB", nvlink_switched=False) for n in range(2)),
        },
        "no NVLink at all": {"active": 0, "peer": 0, "gpus": (gpu(0, nvlinks=0), gpu(1, nvlinks=0))},
        "packets that the link repeats": {"active": 12, "damaged": 3.0},
        "another model beside it": {
            "active": 4,
            "gpus": (gpu(0, name="NVIDIA H100", nvlink_switched=False), gpu(1, nvlink_switched=False)),
        },
    },
    severities=(
        ({"active": 0, "wire_s": 0.6}, "critical"),
        ({"active": 0}, "high"),
        ({"active": 9}, "medium"),
        ({"active": 11, "wire_s": 0.0}, "medium"),  # down, though no rank waits for it
        ({"peer": 9, "gpus": (gpu(0),), "wire_s": 0.0}, "low"),  # it has no other to talk to
        ({"active": 12, "recoveries": 1}, "low"),
        ({"active": 12, "recoveries": 30}, "medium"),
    ),
    best=({"active": 6}, 1 / 0.85),
    also_fires={
        "a link less than its peer": {
            "active": 3,
            "peer": 4,
            "gpus": (gpu(0, nvlink_switched=False, nvlinks=4), gpu(1, nvlink_switched=False, nvlinks=4)),
        },
        "no link at all of boards that exist with NVLink alone": {
            "active": 0,
            "peer": 0,
            "gpus": tuple(gpu(n, name="NVIDIA H100 80GB HBM3", nvlink_switched=None) for n in range(2)),
        },
    },
    not_measured={
        "one of its GPUs": ({"active": 12, "blind": {"gpu.nvlinks_active": 0}}, ("gpu.nvlinks_active",)),
        "how often links recover": (
            {"active": 12, "blind": {"gpu.nvlink_recoveries": 0}},
            ("gpu.nvlink_recoveries",),
        ),
        "how many packets are damaged": (
            {"active": 12, "blind": {"gpu.nvlink_crc_per_s": 1}},
            ("gpu.nvlink_crc_per_s",),
        ),
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_gpu008_distinguishes_links_that_are_down_from_noisy_ones() -> None:
    assert found("GPU008", TABLE.job()).title == "NVLinks down: GPU 1"
    assert "9 of 12 links up" in found("GPU008", TABLE.job()).evidence[0].note
    noisy = found("GPU008", TABLE.job(active=12, damaged=400.0, recoveries=7))
    assert "packet errors" in noisy.title and [e.value for e in noisy.evidence] == [7.0, 400.0]


def test_gpu008_sees_that_a_switch_is_missing_where_all_are_alike() -> None:
    assert found("GPU008", TABLE.job(active=10, peer=10)).scope.gpus == (0, 1)


def test_gpu008_names_the_gpus_it_reaches_over_pcie_while_others_have_nvlink() -> None:
    gpus = tuple(gpu(n, nvlink_switched=False) for n in range(3))
    paths = (GpuPath(0, 1, "SYS", "OK"), GpuPath(0, 2, "NV12", "OK"), GpuPath(1, 2, "SYS", "OK"))
    counted = {"gpu.nvlinks_active": {0: 12, 1: 0, 2: 12}}
    analysis = gpu_jobs.on_gpus(counted, gpus=gpus, paths=paths, slow=0.2, wire_s=0.3)
    finding = found("GPU008", analysis)
    assert finding.scope.gpus == (1,)
    assert [e.note for e in finding.evidence] == [
        "GPU 1 (rank 1): 0 of 12 links up",
        "GPU 1 (rank 1) reaches GPUs 0 and 2 over PCIe, its peers have NV12",
    ]


def test_gpu008_compares_links_within_a_host() -> None:
    gpus = tuple(replace(one, nvlink_switched=False) for one in on_two_hosts())
    paths = (GpuPath(0, 1, "SYS", "OK"), GpuPath(2, 3, "NV12", "OK"))
    fewer = gpu_jobs.on_gpus({"gpu.nvlinks_active": {0: 4, 1: 4, 2: 12, 3: 12}}, gpus=gpus, paths=paths)
    assert not isinstance(run_rule(RULES["GPU008"], fewer, Config()), Finding)
    finding = found(
        "GPU008", gpu_jobs.on_gpus({"gpu.nvlinks_active": {0: 12, 1: 0, 2: 12, 3: 12}}, gpus=gpus, paths=paths)
    )
    assert [e.note for e in finding.evidence] == ["GPU 1 (rank 1): 0 of 12 links up"]


def test_gpu008_reports_the_traffic_of_the_remaining_links() -> None:
    carrying = found(
        "GPU008", gpu_jobs.on_gpus({"gpu.nvlinks_active": {0: 12, 1: 9}, "gpu.nvlink_mb_per_s": {1: 9000.0}})
    )
    assert [(e.metric, e.value) for e in carrying.evidence][1:] == [("gpu.nvlink_mb_per_s", 9000.0)]
