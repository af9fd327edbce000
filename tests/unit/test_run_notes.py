"""The small files beside the rings: names of parts reach the run file, and broken ones are a gap."""

from __future__ import annotations

import json
from pathlib import Path

from advisor.run.notes import Notes
from advisor.store.reader import read_recording
from advisor.store.writer import RunWriter

BLUR = {"kind": "transform", "name": "Blur", "file": "/job/data.py", "line": 7}


def test_names_of_parts_reach_the_run_file_and_broken_ones_are_a_gap(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    (rings / "part-77.json").write_text(json.dumps(BLUR))
    (rings / "part-78.json").write_text("[]")
    (rings / "part-79.json.12.new").write_text(json.dumps(BLUR))  # its writer is not done
    writer = RunWriter.create(tmp_path / "run", meta={})
    notes = Notes(writer, rings, want_mount=lambda root: None, want_source=lambda path, known_at: None)
    notes.read()
    writer.close()
    made = read_recording(tmp_path / "run")
    assert made.part_names == {77: BLUR} and not notes.facts
    assert [gap.scope for gap in made.gaps] == ["part:78"]
