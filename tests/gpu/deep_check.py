"""Checks a profiler window against the job: `deep_check.py REPORT.json CONDITION ...`, for the first window in the report.

A condition is a dotted path, one of `=`, `<`, `>`, and a value: `device=cuda`, `tensor_core_share>0.8`, `idle.sync>0.001`. A path that ends
in `/step_s` is divided by the step's length: `idle.sync/step_s>0.05`. `flops~` checks that the counted FLOPs agree with the table of models
to a tenth. Prints a summary, or the differences with exit code 1.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

_CONDITION = re.compile(r"([\w.]+)(/step_s)?([=<>])(.+)")


def found(window: Any, path: str) -> Any:
    for name in path.split("."):
        window = window.get(name) if isinstance(window, dict) else None
    return window


def differs(window: dict[str, Any], condition: str) -> str:
    """Describes how the window differs from the condition; empty if the condition holds."""
    path, by_step, sign, wanted = _CONDITION.fullmatch(condition).groups()
    seen = found(window, path)
    if sign == "=":
        return "" if str(seen) == wanted else f"{path} is {seen}, not {wanted}"
    if seen is None:
        return f"{path} was not seen"
    value = seen / window["step_s"] if by_step else seen
    holds = value > float(wanted) if sign == ">" else value < float(wanted)
    return "" if holds else f"{path}{by_step or ''} is {value:.4g}, not {sign} {wanted}"


def flops_differ(facts: dict[str, Any]) -> str:
    roofline = facts.get("roofline") or {}
    table, counted = roofline.get("flops_per_sample"), roofline.get("counted_per_sample")
    if not table or not counted:
        return "FLOPs were not counted, or the model is not known"
    return "" if abs(counted / table - 1) <= 0.1 else f"{counted:.4g} FLOP a sample counted, {table:.4g} in the table"


def differences(document: Mapping[str, Any], conditions: list[str]) -> list[str]:
    """What of a report's first window differs from the conditions; that there is none, and why."""
    facts = document["facts"]
    windows = facts.get("deep") or []
    if not windows:
        return ["no window", *(g["reason"] for g in document["gaps"] if g["metric"].startswith("kernel.window"))]
    found = (flops_differ(facts) if c == "flops~" else differs(windows[0], c) for c in conditions)
    return [difference for difference in found if difference]


def main(report: Path, conditions: list[str]) -> int:
    document = json.loads(report.read_text())
    if wrong := differences(document, conditions):
        print("; ".join(wrong))
        return 1
    windows = document["facts"]["deep"]
    class_ms = {name: round(1e3 * seconds, 3) for name, seconds in windows[0]["classes"].items()}
    idle = {name: round(1e3 * seconds, 3) for name, seconds in windows[0]["idle"].items() if seconds}
    print(f"ms by class {class_ms}, idle {idle}, the window took {windows[0]['cost_s'] or 0:.2f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
