"""Holds a finding against what its fix brings: `gain_check.py REPORT.json RULE TOOK_WITH TOOK_WITHOUT`.

The files hold seconds per step, with the fault and without it (`--took` of samples/faults/jobs/compute/gpu.py). A fault that costs 5 % or
more must be found; one that costs less than 2 % must not be the verdict. Prints the gain beside the predicted one; exit code 1 if wrong.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FOUND_FROM, SILENT_BELOW = 1.05, 1.02


def judged(report: Mapping[str, Any], rule: str, gain: float) -> tuple[str, bool]:
    """Returns a line about the rule, and whether the report is right about it."""
    finding = next((each for each in report["findings"] if each["rule"] == rule), None)
    speedup = ((finding or {}).get("saving") or {}).get("speedup")
    brings = f"without the fault {gain:.3f} times as fast"
    if finding is None:
        right = gain < FOUND_FROM
        return f"{brings}, {rule} not found" + (", too little to judge" if right else ""), right
    predicted = "nothing predicted"
    if speedup:
        inside = speedup[0] <= gain <= speedup[1]
        predicted = f"predicted {speedup[0]:.2f} to {speedup[1]:.2f}{'' if inside else ' (outside)'}"
    return f"{brings}, {predicted}", gain >= SILENT_BELOW or report["verdict"]["rule"] != rule


def main(report: Path, rule: str, with_fault: Path, without: Path) -> int:
    gain = float(with_fault.read_text()) / float(without.read_text())
    line, right = judged(json.loads(report.read_text()), rule, gain)
    print(line)
    return not right


if __name__ == "__main__":
    report, rule, with_fault, without = sys.argv[1:]
    sys.exit(main(Path(report), rule, Path(with_fault), Path(without)))
