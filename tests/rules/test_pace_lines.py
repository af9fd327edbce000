"""Faults of computing, waiting and copying in whole recordings of an A100: each rule speaks just above its line, is silent just below it,
and a sound job gets no finding. What a recorder would write is made up here: on a CPU these faults cannot be had.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from recordings import MS, recording, series, step, table
from rn50_advisor.advisor.model.recording import Recording, Series
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import GPU_STEP_FIELDS

STEPS = 120
GIB = 1 << 30
MEMORY = 40 * GIB
# The host runs ahead until the queue is full, which holds it in the backward pass; the GPU never runs dry.
HOST = {"input_wait": 2.0, "forward": 15.0, "backward": 77.0, "optimizer": 5.0, "gap": 1.0}
# A value is read after each update: it is there that the host waits for the GPU.
READING = {**HOST, "backward": 37.0, "gap": 41.0}
GPU = {"input_wait": 0.0, "forward": 33.0, "backward": 63.0, "optimizer": 4.0, "gap": 0.0}
# Host and GPU side by side: nothing is ever queued.
ABREAST = {"input_wait": 4.0, "forward": 30.0, "backward": 60.0, "optimizer": 5.0, "gap": 1.0}
LAYER = {
    "device": "cuda", "input": "float32", "weight": "float32", "autocast": "bfloat16", "input_layout": "channels_last",
    "weight_layout": "channels_last", "shape": [128, 3, 224, 224], "varies": False, "weight_shape": [64, 3, 7, 7],
}  # fmt: skip
CUDA = {
    "device": 0, "name": "NVIDIA A100-SXM4-40GB", "uuid": "00000000-aaaa", "capability": [8, 0], "memory_bytes": MEMORY,
    "tf32_matmul": True, "tf32_cudnn": True, "cudnn_benchmark": True, "cudnn_deterministic": False,
}  # fmt: skip
SITE = {"call": "item", "file": "/job/train.py", "line": 88, "phase": "gap", "count": 12, "looks": 12, "least_ns": MS}
COPY = {**SITE, "call": "to", "line": 61, "phase": "forward", "pinned": True, "non_blocking": True, "aside": False}
MODEL = {"class": "job.Net", "parameters": 9_000_000, "layers": {"Conv2d": 40, "BatchNorm2d": 40, "Linear": 1}}
RESNET50 = {"class": "ResNet", "parameters": 25_557_032, "layers": {"Conv2d": 53, "Linear": 1}}
FACTS: dict[str, Any] = {
    "cuda": CUDA,
    "conv": LAYER,
    "linear": {**LAYER, "weight_shape": [1000, 2048]},
    "autocast": {"enabled": True, "device": "cuda", "dtype": "bfloat16"},
    "model": MODEL,
    "torch": "2.8.0+cu128",
    "optimizer": {"class": "SGD", "fused": True},
    "syncs": {"looks": 12, "device": "cuda", "sites": []},
    "copies": [{**COPY, "bytes": 12 * 20_000_000, "blocked_ns": 12 * MS}],
}
OFF = {"enabled": False}
PLAIN = {**LAYER, "autocast": None}
FIRST = {**LAYER, "input_layout": "channels_first", "weight_layout": "channels_first"}
HARDLY = {"input_wait": 0.0, "optimizer": 4.0, "gap": 70.0}


def run(
    *,
    host: Mapping[str, float] = HOST,
    gpu: Mapping[str, float] = GPU,
    util: float = 97.0,
    active: float | None = None,
    peak: float = 0.6,
    samples: int = 128,
    fixed: float | None = None,
    gpus: Mapping[int, float] | None = None,
    **facts: Any,
) -> Recording:
    """`fixed`: each fifth batch is half as large, and so much of the compute is the same for it; `gpus`: GB in use on each."""
    sizes = [samples // 2 if fixed is not None and n % 5 == 4 else samples for n in range(STEPS)]
    share = [1.0 if size == samples else (fixed or 0.0) + (1.0 - (fixed or 0.0)) / 2 for size in sizes]
    used = gpus or {0: 24.0}
    devices = [_device(index) for index in used]
    kinds: dict[tuple[str, str], Series] = {}
    for index, gigabytes in used.items():
        for metric, value in (
            ("util_pct", util), ("mem_used_bytes", gigabytes * 1e9), ("pcie_gen", 4.0), ("pcie_width", 16.0), ("own_processes", 1.0),
            ("sm_clock_mhz", 1400.0), ("sw_thermal_s", 0.0), ("hw_thermal_s", 0.0),
        ):  # fmt: skip
            kinds[f"gpu.{metric}", f"gpu:{index}"] = series(*((float(t), value) for t in range(10)))
        if active is not None:
            kinds["gpu.sm_active_pct", f"gpu:{index}"] = series(*((float(t), active) for t in range(10)))
    return recording(
        {0: [step(**_scaled(host, s), samples=size) for s, size in zip(share, sizes, strict=True)]},
        gpu_steps={0: _gpu_rows([_scaled(gpu, s) for s in share], peak)},
        facts={100: {**FACTS, **facts}},
        samples=kinds,
        meta={"environment": {"gpus": devices}},
    )


def _scaled(phases: Mapping[str, float], share: float) -> dict[str, float]:
    return {name: ms * share for name, ms in phases.items()}


def _gpu_rows(rows: list[dict[str, float]], peak: float) -> Any:
    memory = {"allocated_bytes": 0.5 * peak * MEMORY, "reserved_bytes": peak * MEMORY, "peak_bytes": peak * MEMORY}
    steps = [{"step": n, **{f"{p}_ns": ms * MS for p, ms in row.items()}, **memory} for n, row in enumerate(rows)]
    return table((*GPU_STEP_FIELDS, "flags"), [{name: round(value) for name, value in row.items()} for row in steps])


def _device(index: int) -> dict[str, Any]:
    about = {"name": CUDA["name"], "uuid": f"GPU-0000000{index}-aaaa", "pci_bus_id": f"0:{index}0:0", "nvlinks": 0}
    return {"index": index, "mem_total_bytes": MEMORY, "pcie_gen_max": 4, "pcie_width_max": 16, **about}


def report(**changes: Any) -> Report:
    return diagnose(run(**changes))


def states(report: Report) -> dict[str, str]:
    return {row.rule: row.state for row in report.outcomes}


def waits(ms: float, **given: Any) -> dict[str, Any]:
    return {"looks": 12, "device": "cuda", "sites": [{**SITE, "blocked_ns": 12 * ms * MS, **given}]}


def copied(megabytes: float, least_ms: float, **given: Any) -> list[dict[str, Any]]:
    held = {"bytes": round(12e6 * megabytes), "blocked_ns": 12 * least_ms * MS, "least_ns": least_ms * MS}
    return [{**COPY, **held, **given}]


def computing(ms: float) -> dict[str, Any]:
    """The GPU computes so long; the rest of the step stands still."""
    return {"gpu": {**HARDLY, "forward": ms / 3, "backward": 2 * ms / 3, "gap": 96.0 - ms}}


def optimizer(ms: float) -> dict[str, Any]:
    return {"gpu": {**GPU, "optimizer": ms, "backward": 67.0 - ms}, "optimizer": {"class": "AdamW", "fused": None}}


def parallel(first: float) -> dict[str, Any]:
    made = [{"devices": 2, "file": "/job/train.py", "line": 30}]
    return {"gpus": {0: first, 1: 20.0}, "data_parallel": made}


AFTER_IT: dict[str, Any] = {"host": READING, "gpu": {**GPU, "gap": 9.0}, "util": 90.0}
NO_TF32 = {**CUDA, "tf32_cudnn": False, "tf32_matmul": False}


def resnet50(longer: float) -> dict[str, Any]:
    """ResNet50 with a batch of 256, in steps this many times as long."""
    return {"model": RESNET50, "samples": 256, "host": _scaled(HOST, longer), "gpu": _scaled(GPU, longer)}


LINES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("CMP001", {"autocast": OFF, "conv": PLAIN, "linear": PLAIN, "cuda": NO_TF32}, {"autocast": OFF, "conv": PLAIN, "linear": PLAIN}),
    (
        "CMP001",
        {"autocast": OFF, "conv": PLAIN, "linear": PLAIN, "cuda": NO_TF32, **computing(22)},
        {"autocast": OFF, "conv": PLAIN, "linear": PLAIN, "cuda": NO_TF32, **computing(18)},
    ),
    ("CMP002", {"conv": FIRST}, {"conv": {**FIRST, "weight_layout": "channels_last"}}),
    ("CMP002", {"conv": FIRST, **computing(22)}, {"conv": FIRST, **computing(18)}),
    (
        "CMP003",
        {"host": ABREAST, "gpu": ABREAST, "util": 84.0, "active": 97.0},
        {"host": ABREAST, "gpu": ABREAST, "util": 86.0, "active": 97.0},
    ),
    (
        "CMP003",
        {"host": ABREAST, "gpu": ABREAST, "util": 99.0},  # which counts every kernel, however short
        {"host": ABREAST, "gpu": ABREAST, "util": 99.0, "active": 93.0},
    ),
    ("CMP003", {"host": ABREAST, "gpu": ABREAST, "util": 50.0}, {"util": 50.0}),
    ("CMP004", {**AFTER_IT, "syncs": waits(40)}, AFTER_IT),
    (
        "CMP004",
        {**AFTER_IT, "gpu": {**GPU, "gap": 2.4}, "syncs": waits(40)},
        {**AFTER_IT, "gpu": {**GPU, "gap": 1.6}, "syncs": waits(40)},
    ),
    ("CMP004", {**AFTER_IT, "syncs": waits(40, looks=6)}, {**AFTER_IT, "syncs": waits(40, looks=5)}),
    # kernels that were queued after the update take part of the time between steps
    ("CMP004", {**AFTER_IT, "util": 97.0, "syncs": waits(40)}, {**AFTER_IT, "util": 98.5, "syncs": waits(40)}),
    ("CMP005", {"fixed": 0.40, "peak": 0.3}, {"fixed": 0.25, "peak": 0.3}),
    ("CMP005", {"fixed": 0.40, "peak": 0.44}, {"fixed": 0.40, "peak": 0.47}),
    ("CMP006", {"fixed": 0.03, "peak": 0.85}, {"fixed": 0.08, "peak": 0.85}),
    ("CMP006", {"fixed": 0.03, "peak": 0.82}, {"fixed": 0.03, "peak": 0.78}),
    ("CMP008", resnet50(1.57), resnet50(1.48)),  # of 2470 images/s
    ("CMP009", {"cuda": {**CUDA, "cudnn_benchmark": False}}, {"cuda": {**CUDA, "cudnn_benchmark": False, "cudnn_deterministic": True}}),
    ("CMP009", optimizer(5.4), optimizer(4.6)),
    ("H2D001", {"copies": copied(41.6, 4.4, pinned=False)}, {"copies": copied(41.6, 4.1, pinned=False)}),
    ("H2D001", {"copies": copied(78, 9, pinned=False)}, {"copies": copied(78, 9, pinned=False, aside=True)}),
    ("H2D002", {"copies": copied(62.4, 40, non_blocking=False)}, {"copies": copied(41.6, 40, non_blocking=False)}),
    ("COM005", parallel(22.4), parallel(21.6)),
]  # fmt: skip


def test_a_sound_job_gets_no_finding() -> None:
    made = report()
    assert made.findings == () and made.verdict.state == "healthy", made.verdict
    measured = states(made)
    assert {measured[rule] for rule in ("CMP001", "CMP002", "CMP003", "CMP004", "CMP009", "H2D001", "H2D002")} == {
        "clear"
    }


@pytest.mark.parametrize("line", LINES, ids=[f"{line[0]}-{n}" for n, line in enumerate(LINES)])
def test_each_line_holds_from_the_recording_to_the_finding(line: tuple[str, dict[str, Any], dict[str, Any]]) -> None:
    rule, above, below = line
    assert states(report(**above))[rule] == "fired"
    assert states(report(**below))[rule] == "clear"


def test_item_in_each_step_is_the_verdict_with_its_line_and_number() -> None:
    host = {**HOST, "backward": 20.0, "gap": 67.0}
    made = report(gpu={**GPU, "gap": 12.0}, host=host, util=88.0, syncs=waits(60))
    assert made.verdict.rule == "CMP004", made.verdict
    finding = made.findings[0]
    assert finding.fixes[0].where is not None and finding.fixes[0].where.line == 88
    assert finding.saving is not None and finding.saving.bounds is not None
    assert finding.saving.bounds[1] == pytest.approx(1 / 0.89, abs=0.02)


def test_rules_that_need_new_facts_are_not_measured_in_an_older_recording() -> None:
    made = run()
    old = {100: {"cuda": {"device": 0, "name": CUDA["name"], "uuid": "00000000-aaaa"}}}
    by_rule = states(diagnose(recording({0: [step(**HOST)] * STEPS}, gpu_steps=made.gpu_steps, facts=old)))
    unknown = ("CMP001", "CMP002", "CMP004", "CMP005", "CMP006", "CMP008", "CMP009", "H2D001", "H2D002", "COM005")
    assert {by_rule[rule] for rule in unknown} == {"not_measured"}
