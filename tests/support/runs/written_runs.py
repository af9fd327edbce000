"""Finished runs on disk, with steps of one rank. Not a test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import KIND_STEP
from store_rows import MS, T0_NS, step_row


def written_run(folder: Path, *, steps: int = 100, took_ns: int = 10 * MS, **meta: Any) -> Path:
    """Writes a run of consecutive steps of `step_row`, each `took_ns` long."""
    defaults = {"name": folder.name, "argv": ["train.py"], "started_ns": T0_NS, "started_unix_s": 1.7e9, "exit_code": 0}
    writer = RunWriter.create(folder, meta={**defaults, **meta})
    rows = [step_row(n, start_ns=T0_NS + n * took_ns, took_ns=took_ns) for n in range(steps)]
    writer.put_records(KIND_STEP, 0, rows)
    writer.close()
    return folder
