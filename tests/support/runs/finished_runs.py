"""Finished runs on disk, and changes to their database. Not a test."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path

from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import KIND_STEP
from store_rows import step_row


def finished_run(folder: Path, steps: int = 100) -> Path:
    writer = RunWriter.create(folder, meta={"name": "x", "argv": ["t.py"]})
    writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(steps)])
    writer.close()
    return folder


def on_database(change: str) -> Callable[[Path], None]:
    def apply(run: Path) -> None:
        db = sqlite3.connect(run / "run.sqlite")
        with db:
            db.executescript(change)
        db.close()

    return apply
