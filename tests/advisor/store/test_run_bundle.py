"""A bundle holds the whole run and no secrets, and a stranger's bundle can do no harm."""

from __future__ import annotations

import gzip
import io
import os
import stat
import tarfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trial_samples
from rn50_advisor.advisor.model.errors import AdvisorError, NotARun, UsageError
from rn50_advisor.advisor.store import run_bundle as bundles
from rn50_advisor.advisor.store.kept_trials import TRIED_NAME, keep_tried
from rn50_advisor.advisor.store.run_bundle import make_bundle
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.store.run_writer import RunWriter
from rn50_advisor.probes.rank.layout import KIND_STEP
from store_rows import step_row
from written_runs import written_run


def start_run(folder: Path) -> RunWriter:
    writer = RunWriter.create(folder, meta={"name": "x", "argv": ["t.py"]})
    writer.put_records(KIND_STEP, 0, [step_row(step) for step in range(100)])
    writer.commit()
    return writer


def archive(path: Path, members: list[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as file:
        for member, content in members:
            member.size = member.size or len(content)
            file.addfile(member, io.BytesIO(content) if content else None)
    return path


def of_type(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.type, member.linkname = kind, link
    return member


def test_a_bundle_is_read_like_the_run_it_is_of(tmp_path: Path) -> None:
    start_run(tmp_path / "run").close()
    bundle = make_bundle(tmp_path / "run", tmp_path / "b.tar.gz")
    run, copy = read_recording(tmp_path / "run"), read_recording(bundle)
    assert copy.meta == run.meta
    assert np.array_equal(copy.steps[0], run.steps[0])
    assert len(read_recording(bundle, recent_steps=5).steps[0]) == 5
    assert stat.S_IMODE(bundle.stat().st_mode) == 0o600


@pytest.mark.parametrize("force", [False, True])
def test_no_other_user_can_read_it_at_any_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, force: bool) -> None:
    start_run(tmp_path / "run").close()
    folder = tmp_path / "handed on"
    folder.mkdir()
    if force:
        (folder / "b.tar.gz").write_text("an older one")
        (folder / "b.tar.gz").chmod(0o644)
        reader = (folder / "b.tar.gz").open("rb")
    pack, modes = bundles._pack, []

    def packed(*arguments: Any) -> None:
        pack(*arguments)
        modes.extend(path.stat().st_mode for path in folder.iterdir() if path.name != "b.tar.gz")

    monkeypatch.setattr(bundles, "_pack", packed)
    before = os.umask(0)
    try:
        make_bundle(tmp_path / "run", folder / "b.tar.gz", force=force)
    finally:
        os.umask(before)
    assert [stat.S_IMODE(mode) for mode in modes] == [0o600]
    assert [(path.name, stat.S_IMODE(path.stat().st_mode)) for path in folder.iterdir()] == [("b.tar.gz", 0o600)]
    if force:
        assert reader.read() == b"an older one", "who had it open sees nothing of the new one"
        reader.close()


def test_what_breaks_leaves_nothing_and_what_is_no_file_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_run(tmp_path / "run").close()
    os.mkfifo(tmp_path / "device")
    with pytest.raises(UsageError):
        make_bundle(tmp_path / "run", tmp_path / "device", force=True)

    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(bundles, "_pack", full)
    (tmp_path / "b.tar.gz").write_text("an older one")
    with pytest.raises(AdvisorError, match="No space"):
        make_bundle(tmp_path / "run", tmp_path / "b.tar.gz", force=True)
    assert (tmp_path / "b.tar.gz").read_text() == "an older one"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar.gz", "device", "run"]


def test_a_run_can_be_bundled_while_it_is_written(tmp_path: Path) -> None:
    writer = start_run(tmp_path / "run")
    writer.put_records(KIND_STEP, 0, [step_row(100)])
    bundle = make_bundle(tmp_path / "run", tmp_path / "b.tar.gz")
    writer.close()
    assert len(read_recording(bundle).steps[0]) == 100


def test_the_same_run_gives_the_same_bytes(tmp_path: Path) -> None:
    start_run(tmp_path / "run").close()
    (tmp_path / "run" / "output.log").write_text("hello\n")
    first = make_bundle(tmp_path / "run", tmp_path / "a.tar.gz")
    second = make_bundle(tmp_path / "run" / "run.sqlite", tmp_path / "b.tar.gz")
    assert first.read_bytes() == second.read_bytes()
    with tarfile.open(first) as file:
        assert file.getnames() == ["run/run.sqlite", "run/output.log"]


def test_the_output_comes_along_as_its_tail_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundles, "OUTPUT_TAIL_BYTES", 200)
    start_run(tmp_path / "run").close()
    (tmp_path / "run" / "output.log").write_text(
        "first line\n" + "x" * 100 + "\nlogin --token hunter2\nPASSWORD=hunter2 loss=1.5\n" + "y" * 60 + "\n"
    )
    (tmp_path / "run" / "notes.txt").write_text("hunter2")
    with tarfile.open(make_bundle(tmp_path / "run", tmp_path / "b.tar.gz")) as file:
        output = file.extractfile("run/output.log")
        assert output is not None
        lines = output.read().decode().splitlines()
        assert file.getnames() == ["run/run.sqlite", "run/output.log"]
    assert lines == ["login --token ***", "PASSWORD=*** loss=1.5", "y" * 60]


@pytest.mark.parametrize("with_code", [False, True])
def test_trials_come_along_without_secrets_and_their_diffs_only_with_the_code(tmp_path: Path, with_code: bool) -> None:
    run = written_run(tmp_path / "run")
    tried = replace(trial_samples.several(), argv=("train.py", "--token", "hunter2"))
    keep_tried(run, tried)
    found = read_recording(make_bundle(run, tmp_path / "b.tar.gz", with_code=with_code)).tried
    assert found is not None and found.argv == ("train.py", "--token", "***")
    assert [trial.rule for trial in found.trials] == [trial.rule for trial in tried.trials]
    assert [bool(trial.diff) for trial in found.trials] == [with_code and bool(trial.diff) for trial in tried.trials]


def test_what_only_has_the_name_of_trials_stays_out_of_the_bundle(tmp_path: Path) -> None:
    run = written_run(tmp_path / "run")
    (tmp_path / "secret").write_text("mine")
    (run / TRIED_NAME).symlink_to(tmp_path / "secret")
    with tarfile.open(make_bundle(run, tmp_path / "b.tar.gz")) as file:
        assert file.getnames() == ["run/run.sqlite"]


def test_without_a_name_the_bundle_is_called_after_the_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_run(tmp_path / "run").close()
    monkeypatch.chdir(tmp_path)
    assert make_bundle(Path("run"), None) == Path("run.tar.gz")
    assert (tmp_path / "run.tar.gz").exists()


def test_nothing_is_overwritten_unless_forced(tmp_path: Path) -> None:
    start_run(tmp_path / "run").close()
    taken = tmp_path / "b.tar.gz"
    taken.write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        make_bundle(tmp_path / "run", taken)
    assert taken.read_text() == "mine"
    assert read_recording(make_bundle(tmp_path / "run", taken, force=True)).meta.name == "x"


def test_what_cannot_be_bundled_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(NotARun):
        make_bundle(tmp_path / "absent", tmp_path / "b.tar.gz")
    start_run(tmp_path / "run").close()
    with pytest.raises(AdvisorError, match="could not be written"):
        make_bundle(tmp_path / "run", tmp_path / "absent" / "b.tar.gz")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]


def test_names_in_a_bundle_are_no_paths(tmp_path: Path) -> None:
    start_run(tmp_path / "run").close()
    content = (tmp_path / "run" / "run.sqlite").read_bytes()
    for name in ("../../../../tmp-escaped/run.sqlite", str(tmp_path / "escaped" / "run.sqlite")):
        bundle = archive(tmp_path / "b.tar.gz", [(tarfile.TarInfo(name), content)])
        assert len(read_recording(bundle).steps[0]) == 100
    assert not (tmp_path / "escaped").exists()


def huge(path: Path) -> Path:
    member = tarfile.TarInfo("x/run.sqlite")
    member.size = bundles.UNPACKED_BYTES_MAX + 1
    path.write_bytes(gzip.compress(member.tobuf() + b"\0" * 10_000))
    return path


def huge_header(path: Path) -> Path:
    member = of_type("x/run.sqlite", tarfile.XHDTYPE)
    member.size = 100 << 20
    path.write_bytes(gzip.compress(member.tobuf(tarfile.USTAR_FORMAT) + b"\0" * 10_000))
    return path


def cut_off(path: Path) -> Path:
    member = tarfile.TarInfo("x/run.sqlite")
    member.size = 1 << 20
    path.write_bytes(gzip.compress(member.tobuf() + b"\0" * 10_000))
    return path


def garbled(path: Path) -> Path:
    archive(path, [(tarfile.TarInfo("x/run.sqlite"), bytes(range(256)) * 100)])
    data = bytearray(path.read_bytes())
    data[30:60] = b"\xff" * 30
    path.write_bytes(data)
    return path


def test_what_follows_the_run_in_a_bundle_may_be_cut_off(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunWriter.create(run, meta={"name": "whole"}).close()
    (run / "output.log").write_bytes(b"line\n" * 1000)
    whole = gzip.decompress(make_bundle(run, tmp_path / "b.tar.gz").read_bytes())
    at = whole.index(b"line\nline") + 100
    (tmp_path / "cut.tar.gz").write_bytes(gzip.compress(whole[:at]))
    assert read_recording(tmp_path / "cut.tar.gz").meta.name == "whole"


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: archive(path, []), "no run.sqlite"),
        (lambda path: archive(path, [(tarfile.TarInfo("x/other"), b"x")]), "no run.sqlite"),
        (lambda path: archive(path, [(of_type("run.sqlite", tarfile.SYMTYPE, "/etc/passwd"), b"")]), "no run.sqlite"),
        (lambda path: archive(path, [(of_type("run.sqlite", tarfile.LNKTYPE, "/etc/passwd"), b"")]), "no run.sqlite"),
        (lambda path: archive(path, [(of_type("run.sqlite", tarfile.FIFOTYPE), b"")]), "no run.sqlite"),
        (lambda path: archive(path, [(tarfile.TarInfo("run.sqlite"), b"hello")]), "not an SQLite database"),
        (huge, "more than 2 GiB"),
        (huge_header, "too large"),
        (cut_off, "not a bundle"),
        (garbled, "not a bundle"),
    ],
)
def test_what_is_no_bundle_of_a_run_is_refused(tmp_path: Path, make: Callable[[Path], Path], message: str) -> None:
    with pytest.raises(NotARun, match=message) as error:
        read_recording(make(tmp_path / "b.tar.gz"))
    assert "\n" not in error.value.message
