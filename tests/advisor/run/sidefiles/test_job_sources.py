"""The files of the job's own code that facts point into are kept once, in bounds, and never waited for."""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from rn50_advisor.advisor.model.recording import Recording, Source
from rn50_advisor.advisor.run.sidefiles import job_sources as module
from rn50_advisor.advisor.run.sidefiles.job_sources import Sources, read_source
from rn50_advisor.advisor.store.run_bundle import make_bundle
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.documents.event_documents import StackProfile
from rn50_advisor.probes.documents.rank_documents import RankFacts

TEXT = "loader = DataLoader(data, num_workers=2)\n"


class Run:
    """A run that is being written, and the requests to its file reader."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.writer = RunWriter.create(folder, meta={"name": "x", "argv": ["t.py"]})
        self.asked: list[tuple[str, float]] = []
        self.sources = Sources(self.writer, want=lambda path, at: self.asked.append((path, at)))

    def recording(self) -> Recording:
        self.writer.commit()
        return read_recording(self.folder)


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Run]:
    made = Run(tmp_path / "run")
    yield made
    made.writer.close()


def script(folder: Path, name: str = "train.py", text: str = TEXT) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def facts(folder: Path, *files: str, **more: Any) -> dict[str, Any]:
    return {"cwd": str(folder), "loaders": [{"file": file, "line": 1} for file in files], **more}


def test_a_named_file_is_kept_with_its_hash(run: Run, tmp_path: Path) -> None:
    path = script(tmp_path)
    run.sources.named(facts(tmp_path, "train.py"))
    run.sources.found(read_source(*run.asked[0]))
    kept = run.recording().sources
    assert kept == (Source(str(path), hashlib.sha256(TEXT.encode()).hexdigest(), TEXT),)


def test_each_file_is_asked_for_once_however_often_facts_change(run: Run, tmp_path: Path) -> None:
    for _ in range(3):
        run.sources.named(facts(tmp_path, "train.py", str(tmp_path / "train.py"), argv=["./train.py", "other.py"]))
    assert [path for path, _ in run.asked] == [str(tmp_path / "train.py")]


def test_loaders_models_checkpoints_and_the_script_name_files(run: Run, tmp_path: Path) -> None:
    named = facts(tmp_path, "a.py", ddp=[{"file": "b.py"}], save_sites=[{"file": "c.py"}], argv=["d.py", "--x"])
    run.sources.named(named)
    assert [Path(path).name for path, _ in run.asked] == ["a.py", "b.py", "c.py", "d.py"]


@pytest.mark.parametrize(
    "name",
    [
        "/env/lib/python3.11/site-packages/timm/loader.py",
        "/usr/lib/python3/dist-packages/x.py",
        "/usr/lib/python3.11/runpy.py",
        "/etc/passwd",
        "train",
        "<stdin>",
        "",
    ],
)
def test_other_peoples_code_and_what_is_no_code_is_not_read(run: Run, tmp_path: Path, name: Any) -> None:
    run.sources.named(facts(tmp_path, name))
    assert run.asked == []


def test_a_file_younger_than_the_facts_is_marked(tmp_path: Path) -> None:
    path = script(tmp_path)
    os.utime(path, (1000.0, 1000.0))
    assert [read_source(str(path), at).source.edited for at in (1001.0, 999.0, 0.0)] == [False, True, False]  # type: ignore[union-attr]


@pytest.mark.parametrize("kind", ["missing", "folder", "pipe", "large", "binary"])
def test_what_cannot_be_kept_is_a_gap(run: Run, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "train.py"
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    elif kind == "large":
        path.write_text("#" * (module.FILE_BYTES_MAX + 1))
    elif kind == "binary":
        path.write_bytes(b"\xff\xfe\x00")
    run.sources.named(facts(tmp_path, "train.py"))
    run.sources.finish()
    recording = run.recording()
    assert recording.sources == ()
    assert [(gap.metric, gap.scope) for gap in recording.gaps] == [("source", "train.py")]


def test_files_and_bytes_are_bounded(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ALL_BYTES_MAX", 3 * len(TEXT))
    for number in range(40):
        script(tmp_path, f"part{number}.py")
        run.sources.named(facts(tmp_path, f"part{number}.py"))
    assert len(run.asked) == module.FILES_MAX
    run.sources.finish()
    assert len(run.recording().sources) == 3


def test_an_answer_that_comes_twice_counts_once(run: Run, tmp_path: Path) -> None:
    path = script(tmp_path)
    run.sources.named(facts(tmp_path, "train.py"))
    run.sources.found(read_source(*run.asked[0]))
    path.write_text("changed = True\n")
    run.sources.found(read_source(*run.asked[0]))
    run.sources.finish()
    assert [source.text for source in run.recording().sources] == [TEXT]


def test_secrets_never_reach_the_run_file(run: Run, tmp_path: Path) -> None:
    script(tmp_path, text=TEXT + "wandb.login(key='verysecret')\n")
    run.sources.named(facts(tmp_path, "train.py"))
    run.sources.finish()
    (kept,) = run.recording().sources
    assert kept.text == TEXT + "wandb.login(key='***')\n"
    assert b"verysecret" not in b"".join(path.read_bytes() for path in run.folder.glob("run.sqlite*"))


def test_what_no_secret_can_be_masked_in_is_not_kept(run: Run, tmp_path: Path) -> None:
    script(tmp_path, text="password = 'verysecret\n")
    run.sources.named(facts(tmp_path, "train.py"))
    run.sources.finish()
    recording = run.recording()
    assert recording.sources == () and "masked" in recording.gaps[0].reason


def test_a_bundle_holds_code_only_on_demand(run: Run, tmp_path: Path) -> None:
    script(tmp_path)
    run.sources.named(facts(tmp_path, "train.py"))
    run.sources.finish()
    run.writer.commit()
    without = make_bundle(run.folder, tmp_path / "without.tar.gz")
    within = make_bundle(run.folder, tmp_path / "within.tar.gz", with_code=True)
    assert read_recording(without).sources == ()
    assert [source.text for source in read_recording(within).sources] == [TEXT]
    assert len(run.recording().sources) == 1


def test_a_run_recorded_before_code_was_kept_is_whole(run: Run, tmp_path: Path) -> None:
    run.writer.close()
    database = sqlite3.connect(run.folder / "run.sqlite")
    database.execute("DROP TABLE sources")
    database.close()
    assert read_recording(run.folder).sources == ()
    assert read_recording(make_bundle(run.folder, tmp_path / "old.tar.gz")).sources == ()


def profile(*counts: tuple[str, int]) -> StackProfile:
    """A profile of 400 samples, so many of them in each file."""
    rows = [
        {"frames": [], "user": {"file": file, "line": 1, "function": "forward", "text": ""}, "count": count}
        for file, count in counts
    ]
    return cast(StackProfile, {"looks": 400, "stacks": [*rows, {"frames": [], "count": 9}]})


def test_files_that_take_time_are_kept_the_longest_first(run: Run) -> None:
    """With the rest of the job's code, and not what is installed."""
    installed = "/env/lib/python3.11/site-packages/timm/models/vit.py"
    run.sources.in_stacks(profile(("/job/a.py", 10), ("/job/b.py", 90), ("/job/hardly.py", 7), (installed, 99)), 5.0)
    run.sources.in_stacks(profile(("/job/b.py", 50), ("<string>", 50)), 6.0)
    assert run.asked == [("/job/b.py", 5.0), ("/job/a.py", 5.0)]


def test_files_in_which_batches_are_made_are_kept(run: Run) -> None:
    caller = {"file": "/job/filters.py", "line": 4, "function": "bank"}
    item = {"file": "/job/data.py", "line": 9, "function": "Clips.__getitem__"}
    run.sources.making({"user": item, "callers": [caller], "awaits": None}, 5.0)
    run.sources.making({"user": None, "awaits": None}, 5.0)
    often = {**profile(), "making": [{"user": {**item, "file": "/job/b.py"}, "awaits": None, "count": 8}]}
    seldom = {**profile(), "making": [{"user": {**item, "file": "/job/c.py"}, "awaits": None, "count": 7}]}
    for each in (often, seldom):
        run.sources.in_stacks(cast(StackProfile, each), 6.0)
    assert run.asked == [("/job/data.py", 5.0), ("/job/filters.py", 5.0), ("/job/b.py", 6.0)]


def test_files_that_build_transforms_are_kept(run: Run) -> None:
    inner = {"class": "Pictures", "transform_files": ["/job/presets.py", "/env/lib/python3.11/site-packages/x.py"]}
    run.sources.named(
        cast(RankFacts, {"loaders": [{"class": "DataLoader", "dataset": {"class": "S", "inner": inner}}]})
    )
    assert run.asked == [("/job/presets.py", 0.0)]
