"""The small files beside the rings: names of parts reach the run file, and broken ones are a gap."""

from __future__ import annotations

import json
from pathlib import Path

from rn50_advisor.advisor.model.recording import events_of, happened
from rn50_advisor.advisor.run.sidefiles.rank_notes import Notes
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.documents.event_documents import ChunkedArray, OomKill, SampleMaking, StackProfile

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


def test_an_array_in_chunks_is_told_once(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    array = {"name": "images", "rows": 4096, "chunk": [32, 64, 64], "packed": True}
    (rings / "chunked-77.json").write_text(json.dumps(array))
    (rings / "chunked-78.json").write_text(json.dumps({"name": "images"}))
    writer = RunWriter.create(tmp_path / "run", meta={})
    notes = Notes(writer, rings, want_mount=lambda root: None, want_source=lambda path, known_at: None)
    for _ in range(2):
        notes.read()
    writer.close()
    made = read_recording(tmp_path / "run")
    assert [event.data for event in events_of(made.events, ChunkedArray)] == [array]
    assert [gap.scope for gap in made.gaps] == ["array:78"]


def test_the_files_of_the_dead_are_read_and_go(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    for pid in (7, 8):
        (rings / f"facts-{pid}.json").write_text(json.dumps({"pid": pid}))
    (rings / "flight-7.json").write_text("{}")
    (rings / "error-7.txt").write_text("ValueError: odd torch")
    writer = RunWriter.create(tmp_path / "run", meta={})
    notes = Notes(writer, rings, want_mount=lambda root: None, want_source=lambda path, known_at: None)
    notes.leave(7)
    notes.leave(9)  # a worker, which has none
    assert [path.name for path in rings.iterdir()] == ["facts-8.json"]
    assert set(notes.facts) == {7, 8}
    writer.close()
    assert "odd torch" in read_recording(tmp_path / "run").gaps[0].reason


def test_what_nccl_timed_stands_with_the_facts_of_its_process_whichever_comes_first(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    writer = RunWriter.create(tmp_path / "run", meta={})
    notes = Notes(writer, rings, want_mount=lambda root: None, want_source=lambda path, known_at: None)
    for names in (("times-7", "facts-8"), ("facts-7", "times-8")):
        for name in names:
            (rings / f"{name}.json").write_text(json.dumps({"name": name}))
        notes.read()
    (rings / "facts-8.json").write_text(json.dumps({"name": "again"}))
    notes.leave(8)
    writer.close()
    facts = read_recording(tmp_path / "run").facts
    assert facts[7] == {"name": "facts-7", "collective_times": {"name": "times-7"}}
    assert facts[8] == {"name": "again", "collective_times": {"name": "times-8"}}
    assert sorted(path.name for path in rings.iterdir()) == ["facts-7.json", "times-7.json"]


def test_facts_of_any_shape_do_no_harm_and_what_is_wrong_is_a_gap(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    asked: list[str] = []
    odd = ({"loaders": 7, "argv": "x"}, {"loaders": [7, None], "cwd": 5}, {"loaders": [{"file": 3}], "unpatched": 1})
    for pid, facts in enumerate(odd):
        (rings / f"facts-{pid}.json").write_text(json.dumps({**facts, "rank": pid}))
    writer = RunWriter.create(tmp_path / "run", meta={})
    Notes(writer, rings, want_mount=asked.append, want_source=lambda path, known_at: asked.append(path)).read()
    writer.close()
    made = read_recording(tmp_path / "run")
    assert made.facts == {0: {"rank": 0}, 1: {"rank": 1}, 2: {"rank": 2}} and not asked
    assert {gap.scope for gap in made.gaps} == {"pid:0", "pid:1", "pid:2"}


def test_a_folder_is_asked_for_from_where_the_job_is(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    asked: list[str] = []
    facts = {"cwd": "/runs/today", "loaders": [{"dataset": {"root": "data"}}, {"dataset": {"root": "/data"}}]}
    (rings / "facts-7.json").write_text(json.dumps(facts))
    writer = RunWriter.create(tmp_path / "run", meta={})
    notes = Notes(writer, rings, want_mount=asked.append, want_source=lambda path, known_at: None)
    notes.read()
    assert asked == ["/runs/today/data", "/data"]
    notes.mount_found("/runs/today/data", {"fs_type": "nfs4"})
    writer.close()
    assert read_recording(tmp_path / "run").facts[7]["mounts"] == {"data": {"fs_type": "nfs4"}}


def test_what_the_recorder_found_no_way_to_see_is_a_gap(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    (rings / "facts-7.json").write_text(json.dumps({"unpatched": ["scaler: no such class", "ddp: no stamps"]}))
    (rings / "facts-8.json").write_text(json.dumps({"unpatched": []}))
    writer = RunWriter.create(tmp_path / "run", meta={})
    Notes(writer, rings, want_mount=lambda root: None, want_source=lambda path, known_at: None).read()
    writer.close()
    [gap] = read_recording(tmp_path / "run").gaps
    assert (gap.metric, gap.scope) == ("recorder.unpatched", "pid:7")
    assert "scaler: no such class; ddp: no stamps" in gap.reason


def test_a_note_without_words_means_that_there_was_no_room_for_any(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    (rings / "error-7.txt").touch()
    writer = RunWriter.create(tmp_path / "run", meta={})
    Notes(writer, rings, want_mount=lambda root: None, want_source=lambda path, known_at: None).read()
    writer.close()
    [gap] = read_recording(tmp_path / "run").gaps
    assert (gap.metric, gap.scope) == ("recorder", "pid:7")
    assert "nearly full" in gap.reason and "--shm-size" in gap.hint


def test_steps_whose_events_were_left_out_are_a_gap(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    (rings / "facts-7.json").write_text(json.dumps({"gpu_steps_dropped": 3}))
    (rings / "facts-8.json").write_text(json.dumps({"gpu_steps_dropped": 0}))
    writer = RunWriter.create(tmp_path / "run", meta={})
    Notes(writer, rings, want_mount=lambda root: None, want_source=lambda path, known_at: None).read()
    writer.close()
    [gap] = read_recording(tmp_path / "run").gaps
    assert (gap.metric, gap.scope) == ("gpu.steps", "pid:7") and gap.reason.startswith("3 steps without GPU times")


def test_files_in_a_profile_are_asked_for_as_its_process_knows_them(tmp_path: Path) -> None:
    rings = tmp_path / "rings"
    rings.mkdir()
    (rings / "facts-7.json").write_text(json.dumps({"pid": 7, "written_unix_s": 5.0}))
    asked: list[tuple[str, float]] = []
    writer = RunWriter.create(tmp_path / "run", meta={})
    notes = Notes(writer, rings, want_mount=lambda root: None, want_source=lambda *news: asked.append(news))
    notes.read()
    user = {"file": "/job/model.py", "line": 3, "function": "forward"}
    profile: StackProfile = {"looks": 9, "stacks": [{"frames": [], "user": user, "count": 9}]}
    notes.profiled(happened(StackProfile, profile, t_ns=1, pid=7, rank=0))
    notes.profiled(happened(OomKill, {}, t_ns=2, pid=7, rank=0))
    item: SampleMaking = {"user": {**user, "file": "/job/data.py"}, "awaits": None}
    notes.profiled(happened(SampleMaking, item, t_ns=3, pid=7, rank=0))
    writer.close()
    assert asked == [("/job/model.py", 5.0), ("/job/data.py", 5.0)]
