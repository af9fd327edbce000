"""What a triage has found of this machine, kept with a run so that its report can cite it: `triage -o RUN_DIR/triage.json`, once a boot."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from advisor.core.errors import NotATriage
from advisor.core.triage import BOOT_ID, DATA_PLACE, MADE_AT, Check, parse_triage
from probes.host.procfs import read_text

FILE_NAME = "triage.json"
_BYTES_MAX = 1 << 20


def known_machine(run_dir: Path, root: Path = Path("/")) -> dict[str, Any]:
    """The numbers of a triage that lies beside the runs; empty where there is none, or one of another machine or before its last boot."""
    try:
        with (run_dir / FILE_NAME).open(encoding="utf-8", errors="replace") as file:
            found = parse_triage(file.read(_BYTES_MAX))
    except (OSError, NotATriage):
        return {}
    boot, made, place = (found.get(name) for name in (BOOT_ID, MADE_AT, DATA_PLACE))
    if boot is None or boot.value != read_text(root / "proc/sys/kernel/random/boot_id"):
        return {}
    return {
        "verdict": found.verdict.state,
        "made_at": made.value if made else None,
        "checks": {
            check.name: _plain(check) | ({"place": place.value} if place and check.name.startswith("disk.") else {})
            for check in found.checks
            if isinstance(check.value, (int, float))
        },
    }


def _plain(check: Check) -> dict[str, Any]:
    band = check.expected
    return {
        "value": check.value,
        "unit": check.unit,
        "lo": band.lo,
        "hi": band.hi,
        "source": band.source,
        "state": check.state,
        "hint": check.hint,
    }
