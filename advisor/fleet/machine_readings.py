"""Reads one result of a machine: numbers to rank it by, and facts to group it by."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import PurePath
from typing import Any, TypeGuard

from rn50_advisor.advisor.model.documents.benchmark import Benchmark
from rn50_advisor.advisor.model.documents.machine_triage import BOOT_ID, HOSTNAME, MADE_AT
from rn50_advisor.advisor.model.documents.ranked_fleet import Better, MachineNumber, ResultFile
from rn50_advisor.advisor.model.report import PHASE_TITLES
from rn50_advisor.advisor.reference.gpu_names import gpu_model

# Units in which larger (or smaller) numbers are better, where the check has no band that says so.
_HIGHER_IS_BETTER = ("/s", "MHz", "links", "GB", "GiB")
_LOWER_IS_BETTER = ("s", "ms", "µs", "us", "errors", "events")
_OF_A_LIMIT = ("share", "cores")
_OF_ONE = (".uuid", ".serial", ".pci_bus_id", ".xids")  # specific to one GPU: not comparable
_PHASE_MIN = 0.02  # of the step or of a limit: less does not matter
NO_GPU = "no GPU"


@dataclass(frozen=True, slots=True)
class MachineResult:
    """The part of one result that a fleet needs. `models`: models of the GPUs, sorted.

    `boot`: the kernel's boot id, and `gpus`: the UUIDs of the GPUs; empty if the result lacks them.
    """

    machine: str
    models: tuple[str, ...]
    source: ResultFile
    readings: Mapping[str, MachineNumber] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    boot: str = ""
    gpus: frozenset[str] = frozenset()


def of_triage(document: Mapping[str, Any], file: str, name: str) -> MachineResult:
    """Reads a triage. Leaves out checks whose state is unknown. `name`: used if the result does not name a host."""
    readings: dict[str, MachineNumber] = {}
    facts: dict[str, str] = {}
    host, boot, made, gpus, uuids = name, "", None, [], set()
    for check in document["checks"]:
        what, value, unit = str(check["name"]), check["value"], str(check["unit"] or "")
        if what == HOSTNAME and value:
            host = str(value)
        elif what == MADE_AT and isinstance(value, (int, float)):
            made = float(value)
        elif what.startswith("gpu.") and what.endswith(".name"):
            gpus.append(str(value))
        elif what == BOOT_ID:
            boot = str(value or "")
        elif what.startswith("gpu.") and what.endswith(_OF_ONE):
            if value and what.endswith(".uuid"):
                uuids.add(str(value))
            continue
        if check["state"] == "unknown" or value is None:
            continue
        better = _better(check["expected"], unit)
        if better is not None and _finite(value):
            readings[what] = MachineNumber(float(value), unit, better, _scale(check["expected"], unit))
        elif what not in (HOSTNAME, BOOT_ID, MADE_AT):
            facts[what] = f"{value:g} {unit}".strip() if _finite(value) else str(value)
    verdict = document["verdict"]
    why = str(next(iter(verdict["reasons"]), ""))
    source = ResultFile("triage", file, str(verdict["state"]), made, why)
    return MachineResult(host, _models(gpus), source, readings, facts, boot, frozenset(uuids))


def of_benchmark(made: Benchmark, file: str) -> MachineResult:
    """Reads a benchmark; each measured setting is one component."""
    prefix = f"{made.options.model} {made.options.image_size} px"
    readings = {
        f"{prefix}, {cell.setting.words}": MachineNumber(cell.rate, "images/s", "higher")
        for cell in made.cells
        if cell.images_per_s
    }
    machine = made.machine
    facts = {"torch": machine.torch, "cores": f"{machine.cores:g}" if machine.cores else ""}
    return MachineResult(
        machine.host, _models(machine.names), ResultFile("bench", file, "", made.made_unix_s), readings, facts
    )


def of_report(document: Mapping[str, Any], file: str, name: str, *, kind: Any = "report") -> MachineResult:
    """Reads a job's throughput and step phases. Only runs of one job are comparable, so component names contain the job's name."""
    environment, verdict = document.get("environment") or {}, document["verdict"]
    label = _job(document)
    readings: dict[str, MachineNumber] = {}
    rate = document["throughput"]["samples_per_s"]
    if _finite(rate):
        readings[f"{label}: samples/s"] = MachineNumber(float(rate), "samples/s", "higher")
    critical = {phase: s for phase, s in document["budget"]["critical"].items() if _finite(s)}
    step_s = sum(critical.values())
    for phase, seconds in critical.items():
        if step_s > 0:
            readings[f"{label}: {PHASE_TITLES.get(phase, phase)}"] = MachineNumber(float(seconds), "s", "lower", step_s)
    gpus = [str(gpu["name"]) for gpu in document.get("gpus") or ()]
    facts = {name: str(environment[name]) for name in ("cpu", "kernel", "os") if environment.get(name)}
    state = verdict["rule"] or verdict["state"]
    started = environment.get("started")
    source = ResultFile(kind, file, str(state), float(started) if _finite(started) else None)
    return MachineResult(str(environment.get("host") or name), _models(gpus), source, readings, facts)


def worth_ranking(component: str, values: Mapping[str, MachineNumber]) -> bool:
    """True if any machine spends a relevant time on this phase or uses a relevant part of a limit; always true for other numbers."""
    return any(r.scale is None or r.value >= _PHASE_MIN * r.scale for r in values.values())


def _better(expected: Mapping[str, Any], unit: str) -> Better | None:
    """Returns the better direction, from a one-sided band or else from the unit; None if neither direction is better."""
    lo, hi = expected.get("lo"), expected.get("hi")
    if (lo is None) != (hi is None):
        return "higher" if lo is not None else "lower"
    if unit.endswith(_HIGHER_IS_BETTER):
        return "higher"
    return "lower" if unit in _LOWER_IS_BETTER else None


def _scale(expected: Mapping[str, Any], unit: str) -> float | None:
    """Returns the limit of a number that should be zero, as its unit of comparison. Otherwise 0.1 % of steal would be
    infinitely worse than none.
    """
    hi = expected.get("hi")
    return float(hi) if unit in _OF_A_LIMIT and _finite(hi) and hi > 0 else None


def _finite(value: object) -> TypeGuard[float]:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def group_of(models: Sequence[str]) -> str:
    """Returns the kind of a machine, `8 × A100-SXM`; only machines of one kind are compared."""
    return ", ".join(f"{count} × {model}" for model, count in sorted(Counter(models).items())) or NO_GPU


def _models(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(gpu_model(name) or name for name in names))


def _job(document: Mapping[str, Any]) -> str:
    """Returns the script and the number of ranks: `train.py × 8`."""
    job = document["job"]
    script = next((arg for arg in job["argv"] if str(arg).endswith(".py")), (job["argv"] or ["job"])[0])
    return f"{PurePath(str(script)).name} × {job['ranks']}"
