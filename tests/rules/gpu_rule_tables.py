"""Tables of the rules on GPUs. Not a test."""

from __future__ import annotations

import gpu_rule_cases as jobs
from gpu_rule_cases import FAR, gpu, trend
from rule_cases import death, stands
from rule_table import Table

from rn50_advisor.advisor.model.analysis import Stall
from rn50_advisor.advisor.model.gpu.gpu_facts import GpuPath

ALONE = (gpu(0, ranks=(0, 1)),)
GEFORCE = (GpuPath(0, 1, "PHB", "GNS"),)
HANGS = (Stall(50.0, 40.0, False, 1.0, 1.2, (stands(1, culprit=True),)),)
NOTHING: dict[str, str] = {}

GPU_TABLES: dict[str, Table] = {
    "GPU001": Table(
        jobs.gpu001,
        lines={"share": ({"share": 0.02}, {"share": 0.0199})},
        false_alarms={
            "reasons that flash up while clocks change": {"share": 0.005},
            "a GPU at work at its highest clock": {"share": 0.0, "clock": 1410.0},
        },
        severities=(
            ({"clock": 548.0, "slow": 0.1}, "critical"),
            ({"clock": 900.0}, "high"),
            ({"clock": 1233.0}, "medium"),
            ({"clock": 1370.0}, "low"),  # as fast as its peer: worth a word, not a verdict
            ({"clock": None}, "low"),
        ),
        ranks=(1,),
        best=({"clock": 548.0}, 1 / 0.6),
        also_fires={
            "by the driver alone": {"kind": "sw_thermal"},
            "by the power brake": {"kind": "power_brake"},
            "a machine of one GPU": {"gpus": (gpu(0, ranks=(0,)), gpu(1)), "peer": None},
            "by a driver that does not say by what": {"kind": "thermal"},
        },
        unseen={
            "one of its GPUs": ({"share": 0.0, "blind": {"gpu.throttled_share": 0}}, ("gpu.throttled_share",)),
        },
    ),
    "GPU002": Table(
        jobs.gpu002,
        lines={
            "capped": ({"capped": 0.10}, {"capped": 0.0999}),
            "clock": ({"clock": 1330.0}, {"clock": 1330.1}),
            "limit": ({"clock": 1400.0, "limit": 380.0}, {"clock": 1400.0, "limit": 380.1}),
        },
        false_alarms={
            "full load at the full limit, all alike": {"other": 0.9, "clock": 1400.0},
            "a lower clock without a limit met": {"capped": 0.0},
            "a lowered limit that is never met": {"capped": 0.0, "limit": 300.0},
        },
        severities=(
            ({"clock": 560.0, "slow": 0.1}, "critical"),
            ({"clock": 1000.0}, "high"),
            ({"clock": 1260.0}, "medium"),
            ({"clock": 1330.0}, "low"),
        ),
        ranks=(1,),
        best=({"clock": 1000.0}, 1.4),
        also_fires={"somebody lowered the limit": {"clock": 1400.0, "limit": 300.0}},
        unseen={
            "one of its GPUs": ({"capped": 0.0, "blind": {"gpu.power_capped_share": 0}}, ("gpu.power_capped_share",)),
            "the clock of one that meets its limit": ({"blind": {"gpu.clock_mhz": 1}}, ("gpu.clock_mhz",)),
            "the limit that one meets": ({"clock": 1400.0, "blind": {"gpu.power_limit_w": 1}}, ("gpu.power_limit_w",)),
        },
    ),
    "GPU003": Table(
        jobs.gpu003,
        lines={
            "retries": ({"retries": 1}, {"retries": 0}),
            "reserved": (
                {"retries": 0, "reserved": 0.95, "peak": 0.93},
                {"retries": 0, "reserved": 0.9499, "peak": 0.93},
            ),
            "peak": (
                {"retries": 0, "reserved": 0.97, "peak": 0.90},
                {"retries": 0, "reserved": 0.97, "peak": 0.8999},
            ),
            "often": ({"retries": 2}, {"retries": 0}),
        },
        false_alarms={"a cache that keeps what it got": {"retries": 0, "reserved": 0.99, "peak": 0.6}},
        severities=(
            ({"retries": 2}, "medium"),  # of two hundred steps
            ({"retries": 1}, "low"),
            ({"retries": 0, "reserved": 0.98, "peak": 0.95}, "low"),
        ),
        ranks=(1,),
        unseen={
            "the allocator of a rank": ({"retries": 0, "blind": {"gpu.memory_watched": 0}}, ("gpu.memory_watched",)),
            "how much memory there is": ({"retries": 0, "blind": {"gpu.reserved_share": 0}}, ("gpu.reserved_share",)),
        },
    ),
    "GPU004": Table(
        jobs.gpu004,
        lines={
            "growth": ({"per_step": 5 / 3}, {"per_step": 1.66}),
            "steps": (
                {"per_step": 20.0, "steps": 50.0},
                {"per_step": 20.0, "steps": 49.0},
            ),
            "batches": ({"batches": 1.09}, {"batches": 1.11}),
            "lasting": ({"bend": 0.7}, {"bend": 0.701}),
        },
        false_alarms={
            "nothing moves": {"per_step": 0.0},
            "pictures that become larger": {"per_step": 40.0, "batches": 2.0},
            "caches that settle": {"bend": 0.9},
            "one jump, at an evaluation": {"bend": 0.0},
            "memory that is given back": {"per_step": -2.0},
            "too few looks for a trend": {"trends": ()},
        },
        severities=(
            ({"left": 1198.0}, "critical"),  # 2 MB a second
            ({"left": 1202.0}, "high"),
            ({"left": 7202.0}, "medium"),
            ({"left": 86402.0}, "low"),
            ({"left": None}, "low"),
            ({"deaths": (death(1, exception="torch.OutOfMemoryError: CUDA out of memory. Tried …"),)}, "critical"),
        ),
        ranks=(1,),
        also_fires={
            "two ranks": {"trends": (trend(), trend(per_step=5.0))},
            "by more than the pictures": {"per_step": 70.0, "batches": 2.0},
        },
        unseen={
            "the allocator of a rank": ({"trends": (), "blind": {"gpu.memory_watched": 0}}, ("gpu.memory_watched",)),
        },
    ),
    "GPU005": Table(
        jobs.gpu005,
        lines={
            "processes": ({"count": 1.0}, {"count": 0.0}),
            "sm": ({"sm": 0.02, "held_mb": 0.0}, {"sm": 0.0199, "held_mb": 0.0}),
            "memory": ({"sm": 0.0, "held_mb": 2148.0}, {"sm": 0.0, "held_mb": 2147.0}),
        },
        false_alarms={
            "an idle context": {"sm": 0.0, "held_mb": 400.0},
            "who only came by": {"count": 0.0, "sm": 0.1},
        },
        severities=(
            ({"sm": 0.30}, "critical"),
            ({"sm": 0.29}, "high"),
            ({"sm": 0.10}, "medium"),
            ({"sm": 0.0}, "low"),
            ({"sm": None}, "low"),
        ),
        ranks=(1,),
        best=({"sm": 0.25}, 1 / 0.75),
        also_fires={"whose time is not told": {"sm": None, "held_mb": 0.0}},
        unseen={
            "one of its GPUs": ({"count": 0.0, "blind": {"gpu.foreign_processes": 0}}, ("gpu.foreign_processes",)),
            "what an idle stranger holds": ({"sm": 0.0, "blind": {"gpu.foreign_mem_mb": 1}}, ("gpu.foreign_mem_mb",)),
        },
    ),
    "GPU006": Table(
        jobs.gpu006,
        lines={"missing": ({"width": 12}, {"width": 12.1})},
        false_alarms={
            "a full link": {"width": 16},
            "a board that knows no more": {"gpus": (gpu(0), gpu(1, pcie_gen_max=4, pcie_width_max=4))},
            "a link that carries what it should": {"width": 16, "copied": (25_500.0, 0.751 * 26_000)},
            "a machine whose links all carry less": {"width": 16, "copied": (13_000.0, 12_500.0)},
            "copies across the sockets": {"width": 16, "copied": (25_500.0, 13_000.0), "near": 0.0},
            "copies of a rank that may be across the sockets": {
                "width": 16,
                "copied": (25_500.0, 13_000.0),
                "near": None,
            },
        },
        severities=(
            ({"carried": 6500.0}, "critical"),  # the link is busy all the time: three quarters of it are lost
            ({"carried": 3000.0}, "high"),
            ({"carried": 1000.0}, "medium"),
            ({"carried": 10.0}, "low"),
            ({"carried": None}, "medium"),
            ({"carried": None, "other": (4, 4)}, "low"),  # all alike
            ({"carried": 6500.0, "other": (4, 4)}, "low"),
        ),
        ranks=(1,),
        best=({"carried": 3250.0}, 1 / (1 - 0.5 * 0.75)),
        also_fires={
            "a generation less": {"width": 16, "gen": 3},
            "the first generation": {"width": 16, "gen": 1},
            "a full link that carries half": {"width": 16, "copied": (25_500.0, 13_000.0)},
            "and its rank may run on CPUs of both sockets": {"width": 16, "copied": (25_500.0, 13_000.0), "near": 0.5},
        },
        unseen={
            "one of its GPUs": ({"width": 16, "blind": {"gpu.pcie_width": 0}}, ("gpu.pcie_width",)),
            "what the slot can do": ({"gpus": (gpu(0), gpu(1, pcie_gen_max=None))}, ("gpu.pcie_width",)),
        },
    ),
    "GPU007": Table(
        jobs.gpu007,
        lines={},
        false_alarms={
            "a program that went wrong": {"xids": (13, 31, 43, 45)},
            "nothing": {"xids": (), "uncorrected_errors": 0, "row_remap_pending": 0, "recovery_action": 0, "lost": 0},
            "a GPU that counts no memory errors": {
                "xids": (),
                "ecc": False,
                "blind": {"gpu.uncorrected_errors": 1},
            },
        },
        severities=(
            ({}, "high"),
            ({"lost": 1}, "critical"),
            ({"xids": (63,)}, "medium"),
            ({"xids": (), "row_remap_pending": 1}, "medium"),
            ({"xids": (), "row_remap_failed": 1}, "high"),
            ({"xids": (), "uncorrected_errors": 2}, "high"),
            ({"xids": (), "recovery_action": 1}, "high"),
            ({"deaths": (death(1),)}, "critical"),
        ),
        ranks=(1,),
        also_fires={
            "an Xid that nobody has listed": {"xids": (160,)},
            "and the job hangs": {"stalls": HANGS},
            "before any step": {"steady": 0},
        },
        unseen={
            "Xids, though memory errors are counted": (
                {"xids": (), "blind": {"gpu.hardware_xids": 1}},
                ("gpu.hardware_xids",),
            ),
            "memory errors, though Xids are told": (
                {"xids": (), "blind": {"gpu.uncorrected_errors": 1}},
                ("gpu.uncorrected_errors",),
            ),
            "a GPU that fell silent": ({"xids": (), "blind": {"gpu.errors_watched": 0}}, ("gpu.errors_watched",)),
        },
    ),
    "GPU008": Table(
        jobs.gpu008,
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
            ({"active": 11, "wire_s": 0.0}, "medium"),  # nobody waits for it, yet it is down
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
        unseen={
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
    ),
    "COM008": Table(
        jobs.com008,
        lines={"wire": ({"wire": 0.02}, {"wire": 0.0199})},
        false_alarms={
            "nothing is wrong": {"variables": NOTHING},
            "a GeForce refuses by itself": {"variables": NOTHING, "paths": GEFORCE},
            "switched off where it does not exist": {"paths": GEFORCE},
            "two sockets, and no other GPUs": {"variables": NOTHING, "paths": FAR[:1]},
            "all others are as far": {
                "variables": NOTHING,
                "devices": 3,
                "paths": tuple(GpuPath(a, b, "SYS", "OK") for a, b in ((0, 1), (0, 2), (1, 2))),
            },
            "near ones were chosen": {
                "variables": NOTHING,
                "devices": 3,
                "paths": (GpuPath(0, 1, "PIX", "OK"), *FAR[1:]),
            },
            "somebody else works on the near ones": {
                "variables": NOTHING,
                "devices": 3,
                "paths": FAR,
                "idle": 0.0,
            },
            "a way by the system, by number": {"variables": {"NCCL_P2P_LEVEL": "5"}},
        },
        severities=(
            ({"wire": 0.5}, "critical"),
            ({"wire": 0.3}, "high"),
            ({"wire": 0.1}, "medium"),
            ({"wire": 0.02}, "low"),
            ({"wire": None}, "low"),
        ),
        best=({"wire": 0.3}, 1 / 0.73),
        also_fires={
            "far GPUs while near ones stand idle": {"variables": NOTHING, "devices": 3, "paths": FAR},
            "switched off in the driver": {"variables": NOTHING, "paths": (GpuPath(0, 1, "PHB", "DR"),)},
            "a virtual machine that hides": {"variables": NOTHING, "paths": (GpuPath(0, 1, "PHB", "NS"),)},
            "held to one board": {"variables": {"NCCL_P2P_LEVEL": "LOC"}},
            "the same by its old number": {"variables": {"NCCL_P2P_LEVEL": "0"}},
        },
        unseen={
            "whether the near ones idle": (
                {"variables": NOTHING, "devices": 3, "paths": FAR, "idle": None},
                ("gpu.idle",),
            ),
        },
    ),
    "CPU004": Table(
        jobs.cpu004,
        lines={"far": ({"near": 0.1}, {"near": 0.101})},
        false_alarms={
            "one node": {"near": 1.0},
            "not bound, two nodes": {"near": 0.5},
            "not bound, eight nodes": {"near": 0.125},
        },
        severities=(({}, "low"),),
        ranks=(1,),
    ),
}
