"""Earlier measurements of this machine, kept with a run for its report: `triage -o RUN_DIR/triage.json` (once per boot)
and `bench -o RUN_DIR/bench.json`.
"""

from __future__ import annotations

import os
from dataclasses import asdict
from pathlib import Path
from typing import cast

from rn50_advisor.advisor.model.documents.machine_triage import BOOT_ID, DATA_PLACE, MADE_AT, Check, parse_triage
from rn50_advisor.advisor.model.errors import NotARun, NotATriage
from rn50_advisor.probes.documents.machine_documents import BatchSweep, KnownCheck, KnownSweeps, KnownTriage
from rn50_advisor.probes.host.procfs import read_text

FILE_NAME = "triage.json"
BENCH_NAME = "bench.json"
_BYTES_MAX = 1 << 20


def known_machine(run_dir: Path, root: Path = Path("/")) -> KnownTriage:
    """Returns the numbers of the triage saved in this folder; empty without one, or if it is not of this machine since its last boot."""
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
            check.name: _plain(check, value, place if check.name.startswith("disk.") else None)
            for check in found.checks
            if isinstance(value := check.value, (int, float))
        },
    }


def known_sweeps(run_dir: Path) -> KnownSweeps:
    """Returns images/s by batch size from the benchmark saved in this folder; empty without one, or if it is another host's."""
    try:
        with (run_dir / BENCH_NAME).open(encoding="utf-8", errors="replace") as file:
            text = file.read(_BYTES_MAX)
        from rn50_advisor.advisor.model.documents.benchmark import parse_benchmark  # noqa: PLC0415 - 14 ms of each start, and few runs have one beside them

        found = parse_benchmark(text)
    except (OSError, NotARun, RecursionError):
        return {}
    if found.machine.host != os.uname().nodename:
        return {}
    return {
        "model": found.options.model,
        "image_size": found.options.image_size,
        "device": next(iter(found.machine.names), ""),
        "sweeps": [
            cast(BatchSweep, asdict(sweep))
            for sweep in found.sweeps
            if sweep.devices == 1 and sweep.data == "synthetic"
        ],
    }


def _plain(check: Check, value: float, place: Check | None) -> KnownCheck:
    band = check.expected
    known: KnownCheck = {
        "value": value,
        "unit": check.unit,
        "lo": band.lo,
        "hi": band.hi,
        "source": band.source,
        "state": check.state,
        "hint": check.hint,
    }
    if place is not None:
        known["place"] = place.value
    return known
