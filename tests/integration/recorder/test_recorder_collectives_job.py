"""Collectives called from Python in real ranks: the job gets what it got without the recorder, and its ring holds what was called."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from test_recorder_jobs import rings, run_sound

from rn50_advisor.probes.rank.layout import COLLECTIVES_FIELDS, FLAG_TAIL, KIND_COLLECTIVES, KIND_STEP

pytestmark = pytest.mark.torch

PARAMETERS = 64 * 64 + 64


def test_collectives_give_what_they_give_alone_and_are_recorded_step_by_step(tmp_path: Path) -> None:
    folders = [tmp_path / name for name in ("alone", "watched", "rings")]
    for folder in folders:
        folder.mkdir(mode=0o700)
    alone = run_sound("collectives.py", folders[0])
    watched = run_sound("collectives.py", folders[1], folder=folders[2])
    assert watched.returncode == alone.returncode == 0, watched.stderr
    assert len(alone.stdout.splitlines()) >= 6
    assert watched.stdout == alone.stdout
    for reader in rings(folders[2]):
        drained = reader.drain().rows
        steps = [payload[0] for flags, payload in drained[KIND_STEP] if not flags & FLAG_TAIL]
        rows = [dict(zip(COLLECTIVES_FIELDS, payload, strict=True)) for _, payload in drained[KIND_COLLECTIVES]]
        assert [row["step"] for row in rows if row["step"] in steps[1:]] == steps[1:]
        for row in rows[1:]:
            assert (row["calls"], row["asynchronous"], row["waits"], row["group_size"]) == (2, 1, 1, 2)
            assert row["bytes"] == row["bus_bytes"] == 4 * PARAMETERS
            assert row["optimizer_ns"] == row["call_ns"] + row["wait_ns"] > 0
    facts = [json.loads(path.read_text()) for path in folders[2].glob("facts-*.json")]
    places = {site["function"] for known in facts for site in known.get("collectives", ()) if site["calls"]}
    assert places == {"work", "observations", "averaged"}
