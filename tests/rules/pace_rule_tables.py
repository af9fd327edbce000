"""Tables of the rules on computing, waiting and copying on GPUs. Not a test."""

from __future__ import annotations

import pace_rule_cases as jobs
from rule_cases import SCRIPT, rank
from rule_table import Table

from rn50_advisor.advisor.model.findings import Where
from rn50_advisor.advisor.model.gpu.gpu_pace import Habits

STRANGER = {"foreign_processes": 1.0, "foreign_mem_mb": 7_000.0, "foreign_sm_share": 0.0}

PACE_TABLES: dict[str, Table] = {
    "CMP001": Table(
        jobs.cmp001,
        lines={
            "capability": ({"capability": 7.0}, {"capability": 6.1}),
            "eligible": ({"paced_s": 0.6999}, {"paced_s": 0.7001}),
            "tensor": ({"tensor": 0.0499}, {"tensor": 0.05}),
        },
        false_alarms={
            "TF32 is on": {"tf32": 1.0},
            "autocast is on": {"half": 1.0},
            "the host sets the pace": {"paced_s": 0.9},
            "kernels are no convolutions and matrix products": {"eligible": 0.1},
        },
        severities=(({}, "critical"), ({"paced_s": 0.45}, "high"), ({"paced_s": 0.65}, "medium")),
        best=({"loads": 2.0}, 2.0),
        also_fires={"before Ampere": {"capability": 7.5}, "as kernels tell": {"tensor": 0.0, "eligible": 0.8}},
    ),
    "CMP002": Table(
        jobs.cmp002,
        lines={
            "capability": ({"capability": 7.0}, {"capability": 6.1}),
            "compute": ({"paced_s": 0.6999}, {"paced_s": 0.7001}),
            "convolutions": ({"convolutions": 4}, {"convolutions": 3}),
        },
        false_alarms={
            "one of the two is channels-last": {"first": 0.0},
            "convolutions in single precision, other layers in half": {"half": None},
            "a net with GroupNorm": {"norm": "GroupNorm"},
            "a transformer that cuts patches": {"convolutions": 1},
            "kernels that hardly convolve": {"convolving": 0.1},
        },
        severities=(({}, "medium"), ({"paced_s": 0.65}, "low")),
        where=Where(SCRIPT, 61),
        best=({"loads": 1.25}, 1.25),
        also_fires={
            "weights in half precision": {"half": None, "weight": "float16"},
            "a model that nobody counted": {"told": {"conv": {"autocast": "float16"}}},
        },
    ),
    "CMP003": Table(
        jobs.cmp003,
        lines={
            "idle": ({"paced_s": 0.10}, {"paced_s": 0.0999}),
        },
        false_alarms={
            "kernels fill what launching takes": {"resident": 0.95},
            "the thread waits for a core": {"delay": 0.55},
            "a deep window saw no idle time": {"deep": 0.02},
            "what it saw was between the steps": {"deep": 0.35, "gap": 0.3},
        },
        severities=(({}, "critical"), ({"paced_s": 0.2}, "high"), ({"paced_s": 0.1}, "medium")),
        best=({"paced_s": 0.2}, 1 / 0.8),
        also_fires={
            "as a deep window has it": {"deep": 0.3, "resident": 1.0},
            "where waits explain what is between the steps": {"deep": 0.35, "gap": 0.3, "waited": 0.3},
            "compiled already": {"told": {"compiled_frames": 3, "optimizer": {"fused": True}}},
        },
    ),
    "CMP004": Table(
        jobs.cmp004,
        lines={
            "calls": ({"calls": 0.5}, {"calls": 0.4999}),
            "cost": ({"gap": 0.02}, {"gap": 0.0199}),
        },
        false_alarms={
            "one wait at the log line": {"calls": 0.0, "blocked": 0.0},
            "compute covers it": {"gap": 0.001},
            "the GPU waits for a slow loader": {"gap": 0.001, "fetch": 0.3, "loads": 1.0},
            "the time between steps is the loop's own": {"blocked": 0.001},
            "in a deep window, too": {"blocked": 0.01, "gap": 0.5, "deep": 0.5, "held": 0.01},
            "a deep window that timed no wait": {"blocked": 0.01, "gap": 0.5, "deep": 0.5},
        },
        severities=(
            ({"gap": 0.3}, "critical"),
            ({"gap": 0.15}, "high"),
            ({"gap": 0.05}, "medium"),
            ({"gap": 0.04}, "low"),
        ),
        where=Where(SCRIPT, 88),
        best=({"gap": 0.3, "blocked": 0.2}, 1 / 0.8),
        also_fires={
            "the fetch would pass behind compute": {"gap": 0.0, "fetch": 0.1, "loads": 2.0},
            "as a deep window has it": {"blocked": 0.01, "deep": 0.1, "held": 0.1},
            "nobody named a place": {"habits": Habits()},
        },
    ),
    "CMP005": Table(
        jobs.cmp005,
        lines={
            "gain": ({"fixed": 0.3334}, {"fixed": 0.333}),
            "memory": ({"peak": 0.45}, {"peak": 0.4501}),
            "activity": ({"active": 0.6}, {"active": 0.6001}),
        },
        false_alarms={
            "loading is the limit": {"loads": 1.0},
            "a full GPU": {"active": 0.95},
            "busy tensor cores": {"active": None, "tensor": 0.61},
            "busy memory": {"active": 0.5, "dram": 0.9},
            "a sweep that is flat already": {"rates": {8: 100, 16: 119, 32: 119}},
            "a sweep that falls": {"rates": {4: 90, 8: 100, 16: 80}},
            "larger ones did not fit": {"rates": {4: 60, 8: 100, 16: 160}, "oom_at": 16},
        },
        severities=(({}, "critical"), ({"fixed": 0.4}, "high"), ({"fixed": 0.6, "loads": 1 / 0.9}, "medium")),
        where=Where(SCRIPT, 42),
        best=({"peak": 0.2}, 1 / 0.55),
        also_fires={
            "nobody counts its SMs": {"active": None},
            "tensor cores and memory with room": {"tensor": 0.2, "dram": 0.3},
            "as a sweep has it": {"rates": {8: 100, 16: 121}},
        },
    ),
    "CMP006": Table(
        jobs.cmp006,
        lines={
            "gain": ({"fixed": 0.0499}, {"fixed": 0.05}),
            "memory": ({"peak": 0.8}, {"peak": 0.7999}),
        },
        false_alarms={
            "a large batch with memory left": {"peak": 0.5},
            "as a sweep has it": {"rates": {4: 100, 8: 105.1}},
        },
        also_fires={
            "as a sweep has it": {"fixed": 0.5, "rates": {4: 100, 8: 104.9}},
            "a sweep that falls": {"fixed": 0.5, "rates": {4: 100, 8: 90}},
            "a sweep of larger ones alone": {"rates": {8: 100, 16: 130}},
        },
        severities=(({}, "info"),),
        where=Where(SCRIPT, 42),
    ),
    "CMP008": Table(
        jobs.cmp008,
        lines={"shortfall": ({"ratio": 0.70}, {"ratio": 0.7001})},
        false_alarms={
            "as fast as others": {"ratio": 1.0},
            "stalls are not the hardware's": {"ratio": 0.9, "stalls": 0.5},
        },
        severities=(({"ratio": 0.4}, "critical"), ({}, "high"), ({"ratio": 0.7, "stalls": 0.5}, "medium")),
        best=({"ratio": 0.5}, 2.0),
    ),
    "CMP009": Table(
        jobs.cmp009,
        lines={
            "compute": ({"paced_s": 0.6999}, {"paced_s": 0.7001}),
            "optimizer": (
                {"benchmark": True, "fused": False, "optimizer": 0.05},
                {"benchmark": True, "fused": False, "optimizer": 0.0499},
            ),
            "fixed": ({"usual": 0.95}, {"usual": 0.9499}),
        },
        false_alarms={
            "all is on": {"benchmark": True},
            "pictures of many sizes": {"told": {"conv": {"shape": [8, 3, 512, 700], "varies": True}}},
            "deterministic, as asked": {"told": {"deterministic": True}},
            "a model without convolutions": {"told": {"conv": {}, "model": {"layers": {"Linear": 48}}}},
            "a compiled one without them": {
                "told": {"conv": {}, "optimizer": {"class": "SGD", "convolutions": {"weights": 0}}}
            },
            "an optimizer without a fused form": {
                "benchmark": True,
                "fused": False,
                "optimizer": 0.3,
                "told": {"optimizer": {"class": "LBFGS"}},
            },
            "one whose fused form came later": {
                "benchmark": True,
                "fused": False,
                "optimizer": 0.3,
                "told": {"torch": "2.2.2+cu121"},
            },
        },
        severities=(({}, "low"),),
        also_fires={"TF32": {"benchmark": True, "half": 0.0, "tf32": 0.0}},
        unseen={
            "with what precision it computes": ({"benchmark": True, "half": None, "tf32": 0.0}, ("precision.half",)),
            "whether TF32 is on": ({"benchmark": True, "half": 0.0, "tf32": None}, ("precision.tf32",)),
            "cuDNN's switch": ({"told": {"cuda": {}}}, ("cudnn.benchmark",)),
            "its convolutions": ({"told": {"conv": {}}}, ("conv",)),
            "the sizes of its batches": ({"usual": None}, ("batch.usual_share",)),
            "an optimizer that takes its time": (
                {"benchmark": True, "optimizer": 0.3, "told": {"optimizer": {}}},
                ("optimizer",),
            ),
        },
    ),
    "CMP010": Table(
        jobs.cmp010,
        lines={"looks": ({"on": {"profiler": 9}, "rank_1": 0}, {"on": {"profiler": 8}, "rank_1": 0})},
        false_alarms={
            "nothing is on": {"on": {}, "rank_1": 0},
            "a profiler with a schedule": {"on": {"profiler": 5}, "rank_1": 0},
            "what only slows GPUs, where there is none": {
                "on": {"CUDA_LAUNCH_BLOCKING": 10},
                "rank_1": 0,
                "cuda": False,
            },
            "an aid that nobody knows": {"on": {"another": 10}, "rank_1": 0},
        },
        severities=(({}, "medium"), ({"on": {"TORCH_DISTRIBUTED_DEBUG": 10}, "rank_1": 0}, "low")),
        also_fires={"launches that wait": {"on": {"CUDA_LAUNCH_BLOCKING": 10}, "rank_1": 0}},
    ),
    "CMP011": Table(
        jobs.cmp011,
        lines={"compute": ({"computing": 0.02}, {"computing": 0.0199})},
        false_alarms={
            "no GPU idles": {"idle": 0.0},
            "there is none": {"idle": None, "gpus": 0},
            "whoever started it hides them": {"hidden": ""},
            "in another way": {"hidden": "-1"},
        },
        severities=(({}, "high"),),
        also_fires={"one of them is shown": {"hidden": "0", "idle": 1.0}},
        unseen={"whether they idle": ({"idle": None}, ("gpu.idle_beside",))},
    ),
    "CMP012": Table(
        jobs.cmp012,
        where=Where(SCRIPT, 12),
        lines={
            "count": ({"late": 3.0, "late_s": 1e-5}, {"late": 2.0, "late_s": 1e-5}),
            "share": ({"late": 1.0, "late_s": 0.0201}, {"late": 1.0, "late_s": 0.0199}),
        },
        false_alarms={"nothing is compiled late": {"late": 0.0, "late_s": 0.0}},
        severities=(({}, "medium"),),
        also_fires={"dynamo does not tell why": {"reason": ""}},
        unseen={"when it compiled": ({"late": None}, ("compile.late",))},
    ),
    "H2D001": Table(
        jobs.h2d001,
        lines={
            "cost": ({"share": 0.0445}, {"share": 0.0444}),
            "slower": ({"slower": 1.25}, {"slower": 1.2499}),
        },
        false_alarms={"as fast as from pinned memory": {"slower": 1.0}, "nothing to speak of": {"share": 0.001}},
        severities=(
            ({"share": 0.8, "own": rank(forward=0.8)}, "critical"),
            ({"share": 0.35}, "high"),
            ({}, "medium"),
            ({"share": 0.1}, "low"),
            ({"slower": 1.3}, "low"),  # a fifth of the step, and the link takes most of it
        ),
        where=Where(SCRIPT, 42),
        best=({"share": 0.25}, 1 / 0.85),
        also_fires={"a link that nobody saw": {"gen": None}, "as a deep window has it": {"deep": 0.3}},
    ),
    "H2D002": Table(
        jobs.h2d002,
        lines={"exposed": ({"share": 0.02, "gap": 0.0}, {"share": 0.0199, "gap": 0.0})},
        false_alarms={"small batches": {"share": 0.001, "gap": 0.0}, "no copy waits": {"share": 0.0}},
        severities=(
            ({"share": 0.25}, "critical"),
            ({}, "high"),
            ({"share": 0.05, "gap": 0.0}, "medium"),
            ({"share": 0.04, "gap": 0.0}, "low"),
        ),
        where=Where(SCRIPT, 61),
        best=({"share": 0.2, "gap": 0.0}, 1 / 0.8),
        also_fires={"nobody named a place": {"habits": Habits()}},
    ),
    "COM005": Table(
        jobs.com005,
        lines={
            "devices": ({"devices": 2}, {"devices": 1}),
            "excess": ({"first": 11_000.0, "busy": None}, {"first": 10_999.0, "busy": None}),
        },
        false_alarms={
            "over one GPU": {"devices": 1},
            "all loaded alike": {"first": 10_000.0, "others": 0.9},
            "another one is loaded more": {"first": 10_000.0, "others": 0.9, "on_2": {"mem_used_mb": 17_000.0}},
            "another one is busier": {"first": 10_000.0, "busy": 0.6, "on_2": {"util_share": 0.95}},
            "what somebody else holds on another": {
                "first": 10_000.0,
                "others": 0.9,
                "on_2": {**STRANGER, "mem_used_mb": 17_000.0},
            },
        },
        severities=(({"others": 0.05}, "critical"), ({"others": 0.3}, "high"), ({}, "medium"), ({"busy": None}, "low")),
        where=Where(SCRIPT, 30),
        best=({"devices": 2, "others": 0.3}, 1.5),
        also_fires={
            "by their work alone": {"first": 10_000.0},
            "whatever somebody else holds on another": {"busy": None, "on_2": {**STRANGER, "foreign_mem_mb": 200.0}},
        },
        unseen={
            "whose memory it is": (
                {"busy": None, "on_2": {**STRANGER, "mem_used_mb": 17_000.0}},
                ("gpu.foreign_processes",),
            ),
            "how much somebody else holds": (
                {"first": 10_000.0, "busy": None, "on_2": {"foreign_processes": 1.0, "foreign_sm_share": 0.0}},
                ("gpu.foreign_processes",),
            ),
            "whose work it is": (
                {"first": 10_000.0, "on_2": {**STRANGER, "foreign_mem_mb": 0.0, "foreign_sm_share": 0.3}},
                ("gpu.foreign_processes",),
            ),
        },
    ),
}
