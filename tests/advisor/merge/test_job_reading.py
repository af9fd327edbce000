"""Runs of several nodes in one folder, and a run with frames that other nodes sent beside it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from merged_frames import receive, write_run
from nodes import two_nodes
from recordings import plan
from rn50_advisor.advisor.merge import job_reading
from rn50_advisor.advisor.merge.inbox import INBOX_NAME, sent_recordings
from rn50_advisor.advisor.merge.job_reading import own_folder, read_job, read_several, resolve_job, written_files
from rn50_advisor.advisor.model.errors import NotARun, UsageError
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.store.run_bundle import make_bundle
from rn50_advisor.advisor.store.run_reader import read_recording
from traced_loops import traced_loop, written_trace


def write(folder: Path, own: Recording) -> Path:
    write_run(folder, own)
    return folder


def later(own: Recording, seconds: float, port: str) -> Recording:
    """The same job started again."""
    facts = {
        pid: {"environment_rank": {**facts["environment_rank"], "MASTER_PORT": port}}
        for pid, facts in own.facts.items()
    }
    return replace(own, meta=replace(own.meta, started_unix_s=own.meta.started_unix_s + seconds), facts=facts)


@pytest.fixture
def nodes() -> list[Recording]:
    return two_nodes({rank: plan(30) for rank in range(4)})


def test_a_folder_with_the_runs_of_all_nodes_is_one_job(tmp_path: Path, nodes: list[Recording]) -> None:
    for name, own in zip("ab", nodes, strict=True):
        write(tmp_path / f"20260101-120000-{name}", own)
    merged = read_job(tmp_path)
    assert sorted(merged.steps) == [0, 1, 2, 3]
    assert [node.host for node in merged.nodes] == ["a", "b"]


def test_folders_per_host_and_bundles_are_read_too(tmp_path: Path, nodes: list[Recording]) -> None:
    write(tmp_path / "shared/host-a/20260101-120000", nodes[0])
    make_bundle(write(tmp_path / "elsewhere", nodes[1]), tmp_path / "shared/b.tar.gz")
    assert sorted(read_job(tmp_path / "shared").steps) == [0, 1, 2, 3]


def test_only_the_newest_of_several_jobs_in_a_folder_is_read(tmp_path: Path, nodes: list[Recording]) -> None:
    for name, own in zip("ab", nodes, strict=True):
        write(tmp_path / f"first-{name}", own)
        write(tmp_path / f"second-{name}", later(own, 120.0, "29999"))
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken/run.sqlite").write_bytes(b"no run")
    merged = read_job(tmp_path)
    assert len(merged.nodes) == 2
    assert {
        facts["environment_rank"]["MASTER_PORT"] for node in merged.nodes for facts in node.recording.facts.values()
    } == {"29999"}


def test_a_restarted_job_takes_no_node_of_its_earlier_start(tmp_path: Path, nodes: list[Recording]) -> None:
    """Same nodes, same port, minutes later; the second node has not written anything yet."""
    for name, own in zip("ab", nodes, strict=True):
        write(tmp_path / f"first-{name}", own)
    write(tmp_path / "second-a", later(nodes[0], 300.0, "29500"))
    assert sorted(read_job(tmp_path).steps) == [0, 1]
    write(tmp_path / "second-b", later(nodes[1], 300.0, "29500"))
    assert sorted(read_job(tmp_path).steps) == [0, 1, 2, 3]
    assert len({node.recording.meta.started_unix_s // 100 for node in read_job(tmp_path).nodes}) == 1


def test_only_runs_that_may_belong_to_the_newest_job_are_read(
    tmp_path: Path, nodes: list[Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = time.time()
    for name, own in zip("ab", nodes, strict=True):
        write(tmp_path / f"new-{name}", began(own, now_s - 100.0))
        for number in range(3):
            old = write(tmp_path / f"old-{number}-{name}", began(own, now_s - 86_400.0))
            os.utime(old / "run.sqlite", (now_s - 80_000.0,) * 2)
    read: list[Path] = []

    def counted(path: Path, **given: Any) -> Recording:
        read.append(path)
        return read_recording(path, **given)

    monkeypatch.setattr(job_reading, "read_recording", counted)
    assert sorted(read_job(tmp_path).steps) == [0, 1, 2, 3]
    assert {path.name for path in read} == {"new-a", "new-b"}


def began(own: Recording, unix_s: float) -> Recording:
    return replace(own, meta=replace(own.meta, started_unix_s=unix_s))


def test_a_run_without_ranks_is_no_second_node_of_its_host(tmp_path: Path, nodes: list[Recording]) -> None:
    """A job that has only just started says nothing of its ranks, and Slurm's number is that of the run before."""
    slurm = {"variables": {"SLURM_JOB_ID": "7"}}
    before = [replace(own, meta=replace(own.meta, environment=slurm)) for own in nodes]
    for name, own in zip("ab", before, strict=True):
        write(tmp_path / f"first-{name}", own)
    young = replace(later(before[0], 300.0, "29500"), steps={}, comm={}, processes=(), facts={})
    write(tmp_path / "second-a", young)
    assert read_job(tmp_path).steps == {}


def test_a_folder_with_the_listening_nodes_run_shows_all_nodes(tmp_path: Path, nodes: list[Recording]) -> None:
    sent_to(write(tmp_path / "runs/20260101-120000-a", nodes[0]), nodes[1])
    assert sorted(read_job(tmp_path / "runs").steps) == [0, 1, 2, 3]


def test_a_bundle_holds_what_other_nodes_sent(tmp_path: Path, nodes: list[Recording]) -> None:
    run = sent_to(write(tmp_path / "run", nodes[0]), nodes[1])
    bundle = make_bundle(run, tmp_path / "elsewhere.tar.gz")
    assert bundle.read_bytes() == make_bundle(run, tmp_path / "again.tar.gz").read_bytes()
    from_bundle, from_run = read_job(bundle), read_job(run)
    assert [node.host for node in from_bundle.nodes] == [node.host for node in from_run.nodes] == ["a", "b"]
    assert sorted(from_bundle.steps) == [0, 1, 2, 3]


def test_damaged_frames_are_a_gap_in_run_and_bundle(tmp_path: Path, nodes: list[Recording]) -> None:
    run = write(tmp_path / "run", nodes[0])
    (run / INBOX_NAME).write_bytes(b"SQLite format 3\0" + bytes(4000))
    for path in (run, make_bundle(run, tmp_path / "b.tar.gz")):
        recording = read_job(path)
        assert sorted(recording.steps) == [0, 1]
        assert any("cannot be read" in gap.reason for gap in recording.gaps)


def sent_to(folder: Path, other: Recording) -> Path:
    receive(folder, write_run(folder.with_name(f"{folder.name}-of-the-other"), other))
    return folder


def test_one_nodes_run_is_still_found_by_its_name(tmp_path: Path, nodes: list[Recording]) -> None:
    for name, own in zip("ab", nodes, strict=True):
        write(tmp_path / f"20260101-120000-{name}", own)
    assert resolve_job(str(tmp_path), tmp_path) == tmp_path
    own = resolve_job("b", tmp_path)
    assert own.name == "20260101-120000-b"
    assert sorted(read_job(own).steps) == [2, 3]


def test_a_folder_without_runs_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(NotARun):
        resolve_job(str(tmp_path), tmp_path)
    with pytest.raises(NotARun):
        read_job(tmp_path)


def test_frames_of_other_nodes_are_part_of_the_listening_nodes_run(tmp_path: Path, nodes: list[Recording]) -> None:
    folder = sent_to(write(tmp_path / "run", nodes[0]), nodes[1])
    assert [node.host for node in read_job(folder).nodes] == ["a", "b"]
    assert sorted(read_job(folder, recent_steps=5).steps) == [0, 1, 2, 3]


def test_a_screen_reads_only_the_latest_frames(tmp_path: Path) -> None:
    _, own = two_nodes({rank: plan(400) for rank in range(2)})
    receive(tmp_path, write_run(tmp_path / "run", own))
    whole, recent = (sent_recordings(tmp_path / INBOX_NAME, recent=n)[0].steps[1] for n in (None, 1))
    assert recent.size < whole.size
    assert [int(rows["step"][-1] + rows["count"][-1]) for rows in (whole, recent)] == [400, 400]


def test_a_screen_knows_which_files_to_watch(tmp_path: Path, nodes: list[Recording]) -> None:
    folder = write(tmp_path / "runs/a", nodes[0])
    names = {file.name for file in written_files(folder)}
    assert names == {"run.sqlite", "run.sqlite-wal", "nodes.sqlite", "nodes.sqlite-wal", "tried.json"}
    assert {file.parent for file in written_files(tmp_path / "runs")} == {folder}
    assert written_files(tmp_path / "b.tar.gz")[0] == tmp_path / "b.tar.gz"


def test_trials_are_kept_in_the_folder_of_one_run(tmp_path: Path, nodes: list[Recording]) -> None:
    first = write(tmp_path / "runs/a", nodes[0])
    for path in (first, first / "run.sqlite", tmp_path / "runs"):
        assert own_folder(path) == first
    write(tmp_path / "runs/b", nodes[1])
    (tmp_path / "empty").mkdir()
    for path in (tmp_path / "runs", make_bundle(first, tmp_path / "b.tar.gz"), tmp_path / "empty"):
        assert own_folder(path) is None


def test_traces_of_a_profiler_are_read_like_a_run(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    paths = [written_trace(folder / f"rank{rank}.json.gz", traced_loop(steps=2)) for rank in (0, 1)]
    assert [resolve_job(str(path), tmp_path) for path in (paths[0], folder)] == [paths[0], folder]
    assert [len(made.steps) for made in (read_job(paths[1]), read_job(folder), read_several(paths))] == [1, 2, 2]


def test_runs_in_a_folder_come_before_traces_beside_them(tmp_path: Path, nodes: list[Recording]) -> None:
    for number, one in enumerate(nodes):
        write(tmp_path / f"{number}", one)
    written_trace(tmp_path / "t.json", traced_loop(steps=2))
    assert not read_job(tmp_path).meta.traced


def test_a_run_is_not_reported_with_traces(tmp_path: Path, nodes: list[Recording]) -> None:
    trace = written_trace(tmp_path / "t.json", traced_loop(steps=2))
    with pytest.raises(UsageError, match="no trace"):
        read_several([trace, write(tmp_path / "run", nodes[0])])


@pytest.mark.parametrize("content", [b"", b"hello", b'{"schema": "other"}', b"\x1f\x8bnothing"])
@pytest.mark.parametrize("name", ["t.json", "t.json.gz"])
def test_json_of_others_is_called_neither_a_run_nor_a_trace(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(NotARun, match=r"t\.json\S* is neither a run nor a trace of torch\.profiler"):
        read_job(resolve_job(str(tmp_path / name), tmp_path))
