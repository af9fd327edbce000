"""A worker's log: one record a batch, numbered in the order of their making."""

from __future__ import annotations

from pathlib import Path

from advisor.run.rings import RingReader
from probes.rank.layout import BATCH_FIELDS, FLAG_FIRST_BATCH, KIND_BATCH
from probes.rank.workers import WorkerLog


def test_batches_are_numbered_from_the_workers_start(tmp_path: Path) -> None:
    log = WorkerLog(str(tmp_path), 7, worker=3, loader=1)
    for samples in (8, 8, 5):
        log.end(log.begin(), samples)
    rows = RingReader(tmp_path / "worker-7.ring").drain().rows[KIND_BATCH]
    made = [dict(zip(BATCH_FIELDS, payload, strict=True)) for _, payload in rows]
    assert [(row["number"], row["samples"], row["worker"]) for row in made] == [(0, 8, 3), (1, 8, 3), (2, 5, 3)]
    assert all(row["system_ns"] >= 0 and row["cpu_ns"] > 0 for row in made)
    assert [flags for flags, _ in rows] == [FLAG_FIRST_BATCH, 0, 0]
