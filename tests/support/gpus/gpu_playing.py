"""Readings of a machine that the fake driver plays, in a separate process, as a driver library is loaded only once. Not a test."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from samples.gpus.machines import L40S, machine

# Takes readings, `apart_s` seconds apart, and prints all that the probe reports.
_PROGRAM = """
import dataclasses, json, sys
from pathlib import Path
from rn50_advisor.probes.host.gpu.gpu_probe import GpuProbe
from rn50_advisor.probes.host.target import Target
ticks, root, apart_s, own = int(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]), json.loads(sys.argv[4])
probe = GpuProbe(root)
devices, paths = ([dataclasses.asdict(d) for d in found()] for found in (probe.devices, probe.paths))
targets = [Target(pid, "rank", 0) for pid in own]
readings, listings = [], []
for n in range(ticks):
    if sys.argv[5] == "ends" and n == ticks - 1:
        probe.read_all()
    readings.append(probe.sample(round(n * apart_s * 1e9), targets))
    listings.append(probe.take_listings())
    if (root / "each_tick.py").exists():
        exec((root / "each_tick.py").read_text(), {"n": n, "root": root})
def of(reading):
    return {s.metric + " " + s.scope: s.value for s in reading.samples if s.metric != "gpu.probe_s"}
print(json.dumps({
    "devices": devices,
    "listings": listings,
    "paths": paths,
    "driver": probe.driver_version,
    "cuda": probe.cuda_version,
    "samples": [of(r) for r in readings],
    "cost": [[s.value for s in r.samples if s.metric == "gpu.probe_s"] for r in readings],
    "gaps": [[[g.metric, g.scope, g.reason, g.hint] for g in r.gaps] for r in readings],
}))
"""


def play(
    driver: Path,
    script: Sequence[str],
    ticks: int,
    folder: Path,
    *,
    apart_s: float = 5.0,
    own: Sequence[int] = (),
    ends: bool = False,
) -> dict[str, Any]:
    """Returns the probe's readings of the machine of `script`, with `folder` as the root of its file system.

    `ends`: at the end, the probe reads everything.
    """
    (folder / "script").write_text("\n".join(script) + "\n")
    environment = os.environ | {"LD_LIBRARY_PATH": str(driver), "FAKE_NVML_SCRIPT": str(folder / "script")}
    command = [sys.executable, "-c", _PROGRAM, str(ticks), str(folder), str(apart_s), json.dumps(list(own))]
    command.append("ends" if ends else "")
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert isinstance(answer, dict)
    return answer


def of_gpu(samples: dict[str, float], index: int) -> dict[str, float]:
    """Returns the samples of one GPU by metric."""
    return {key.split()[0]: value for key, value in samples.items() if key.endswith(f" gpu:{index}")}


class Refused(Exception):
    def __init__(self, value: int) -> None:
        self.value = value


CODES = {
    "NVML_ERROR_INVALID_ARGUMENT": 2,
    "NVML_ERROR_UNKNOWN": 999,
    "NVML_ERROR_TIMEOUT": 10,
    "NVML_ERROR_NOT_SUPPORTED": 3,
    "NVML_ERROR_NO_PERMISSION": 4,
}


def driver(codes: dict[object, int]) -> SimpleNamespace:
    """A driver that answers 7 to all fields, except those in `codes`, which it refuses with these codes; `codes` may change."""

    def answer(handle: object, fields: Sequence[object]) -> list[SimpleNamespace]:
        returned = [codes.get(field, 0) for field in fields]
        return [SimpleNamespace(nvmlReturn=code, valueType=3, value=SimpleNamespace(ullVal=7)) for code in returned]

    return SimpleNamespace(nvmlDeviceGetFieldValues=answer, NVMLError=Refused, **CODES)


def processes(folder: Path, *rows: tuple[int, ...]) -> list[str]:
    (folder / "processes").write_text("".join(" ".join(map(str, row)) + "\n" for row in rows))
    return [*machine(L40S, 2), f"processes {folder / 'processes'}"]
