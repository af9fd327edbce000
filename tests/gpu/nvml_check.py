"""The GPU probe on real hardware: its readings, the cost of each query, and agreement with nvidia-smi.

python tests/gpu/nvml_check.py OUT.json [TICKS]: prints a summary and each disagreement; exits 1 if the probe and nvidia-smi disagree, or
without a GPU. Changes no setting.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from rn50_advisor.probes.host.gpu.gpu_probe import GpuProbe
from rn50_advisor.probes.host.gpu.gpu_readers import CALLS, THROUGHPUT, fields_for
from rn50_advisor.probes.host.gpu.nvml import ask_fields

TICKS = 12
# nvidia-smi's field, our metric, unit, largest relative difference (they are not read at the same moment)
COMPARED = (
    ("memory.total", "gpu.mem_total_bytes", 1 << 20, 0.01),
    ("power.limit", "gpu.power_limit_w", 1.0, 0.01),
    ("clocks.max.sm", "gpu.sm_clock_max_mhz", 1.0, 0.0),
    ("pcie.link.width.current", "gpu.pcie_width", 1.0, 0.0),
    ("temperature.gpu", "gpu.temp_c", 1.0, 0.25),
)


def main(out: Path, count: int = TICKS) -> int:
    probe = GpuProbe()
    devices, began = probe.devices(), time.monotonic_ns()
    paths = probe.paths()
    ticks, gaps = [], []
    for _ in range(count):
        tick = time.monotonic_ns()
        reading = probe.sample(tick, [])
        ticks.append(((time.monotonic_ns() - tick) / 1e6, reading))
        gaps += reading.gaps
        time.sleep(max(0.0, 1.0 - (time.monotonic_ns() - tick) / 1e9))
    read = {f"{s.metric} {s.scope}": s.value for _, reading in ticks for s in reading.samples}
    wrong = [line for device in devices for line in compare(device.index, read)]
    report = {
        "devices": [dataclasses.asdict(device) for device in devices],
        "paths": [dataclasses.asdict(path) for path in paths],
        "driver": probe.driver_version,
        "cuda": probe.cuda_version,
        "last": read,
        "gaps": [dataclasses.asdict(gap) for gap in gaps],
        "tick_ms": [round(ms, 2) for ms, _ in ticks],
        "costs_us": costs(probe) if devices else {},
        "took_s": (time.monotonic_ns() - began) / 1e9,
        "disagreements": wrong,
    }
    out.write_text(json.dumps(report, indent=1))
    print(f"{len(devices)} GPUs, {len(read)} values, {len(gaps)} gaps, median tick {median_ms(ticks):.1f} ms")
    for line in wrong or ["nvidia-smi agrees"] * bool(devices):
        print(line)
    return 1 if wrong or not devices else 0


def median_ms(ticks: list[tuple[float, Any]]) -> float:
    return statistics.median(ms for ms, _ in ticks)


def compare(index: int, read: dict[str, float]) -> list[str]:
    names = ",".join(name for name, *_ in COMPARED)
    command = ["nvidia-smi", f"--id={index}", f"--query-gpu={names}", "--format=csv,noheader,nounits"]
    values = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split(",")
    wrong = []
    for (name, metric, unit, apart), text in zip(COMPARED, values, strict=True):
        measured = read.get(f"{metric} gpu:{index}")
        try:
            expected = float(text) * unit
        except ValueError:
            continue  # [N/A]: nothing to compare
        if measured is None or abs(measured - expected) > apart * max(abs(expected), 1.0):
            wrong.append(f"GPU {index} {name}: nvidia-smi {expected}, probe {measured}")
    return wrong


def costs(probe: GpuProbe) -> dict[str, float]:
    """Median microseconds of each query to the first GPU; negative: refused."""
    watched = next(iter(probe._watched.values()))
    nvml, handle = probe._nvml, watched.handle
    fields = [field.field for field in fields_for(watched.device)]
    asked: dict[str, Callable[[], Any]] = {
        "+".join(c.metrics): (lambda c=c: c.read(nvml, handle)) for c in (*CALLS, THROUGHPUT)
    }
    asked["all fields"] = lambda: ask_fields(nvml, handle, fields)
    asked["processes"] = lambda: nvml.nvmlDeviceGetComputeRunningProcesses_v3(handle)
    times_ns = itertools.count(time.monotonic_ns() + 10**12, 10**9)  # GPM is not queried twice within 0.1 s
    asked["gpm sample"] = lambda: watched.gpm.read(next(times_ns))
    found = {}
    for name, ask in asked.items():
        times = []
        try:
            for _ in range(20):
                start = time.perf_counter_ns()
                ask()
                times.append((time.perf_counter_ns() - start) / 1e3)
            found[name] = round(statistics.median(times), 1)
        except nvml.NVMLError as error:
            found[name] = -float(error.value)
    return found


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), *map(int, sys.argv[2:])))
