"""Results of machines as `fleet` reads them. Not a test."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from typing import Any

from report_samples import healthy
from rn50_advisor.advisor.fleet.fleet_ranking import rank
from rn50_advisor.advisor.fleet.machine_readings import MachineResult, of_report, of_triage
from rn50_advisor.advisor.model.documents.ranked_fleet import Fleet

SOUND = {
    "memory.copy_gb_per_s": (20.0, "GB/s", 10.0, None),
    "decode.images_per_core_s": (400.0, "images/s", 300.0, None),
    "disk.sync_ms": (2.0, "ms", None, 20.0),
    "gpu.0.bf16_tflop_per_s": (270.0, "TFLOP/s", 200.0, None),
}


def check(name: str, value: Any, unit: str = "", *, lo: float | None = None, hi: float | None = None) -> dict[str, Any]:
    expected = {"lo": lo, "hi": hi, "source": ""}
    return {"name": name, "value": value, "unit": unit, "expected": expected, "state": "ok", "hint": ""}


def triage(
    host: str, values: Mapping[str, float] | None = None, *, gpu: str = "NVIDIA A100-SXM4-40GB", **facts: Any
) -> dict[str, Any]:
    """The result of one machine; `values` replaces values of a sound one."""
    checks = [check("machine.hostname", host), *(check(name, value) for name, value in facts.items())]
    checks += [check(f"gpu.{n}.name", gpu) for n in range(8)] if gpu else []
    for name, (value, unit, lo, hi) in SOUND.items():
        checks.append(check(name, (values or {}).get(name, value), unit, lo=lo, hi=hi))
    verdict = {"state": "keep", "reasons": []}
    return {"schema": "rn50-advisor/triage/1", "verdict": verdict, "checks": checks, "gaps": []}


def results_of(*documents: dict[str, Any]) -> list[MachineResult]:
    return [of_triage(document, f"{n}.json", f"m{n}") for n, document in enumerate(documents)]


def job_report(host: str, rate: float = 1000.0, **phases: float) -> MachineResult:
    critical = {"input_wait": 0.001, "forward": 0.03, "backward": 0.06, "optimizer": 0.01, **phases}
    document = healthy().as_json()
    document["environment"] = {**document["environment"], "host": host}
    document["budget"]["critical"] = critical
    document["throughput"]["samples_per_s"] = rate
    return of_report(json.loads(json.dumps(document)), f"{host}.json", host)


def many(count: int = 20, *, noise: float = 0.01, seed: int = 0, **bad: Mapping[str, float]) -> Fleet:
    """Sound machines that differ by `noise` (standard deviation); the machines in `bad` have the values given there."""
    dice = random.Random(seed)
    documents = []
    for n in range(count):
        values = {name: value * dice.gauss(1.0, noise) for name, (value, *_) in SOUND.items()}
        documents.append(triage(f"m{n}", {**values, **bad.get(f"m{n}", {})}))
    return rank(results_of(*documents))
