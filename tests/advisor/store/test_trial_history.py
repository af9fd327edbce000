"""The file of past trials: private, complete lines, nothing of the job, and read whatever stands in it."""

from __future__ import annotations

import os
import stat
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import trial_samples as samples
from rn50_advisor.advisor.model.trials import MeasuredSpeedup
from rn50_advisor.advisor.store.trial_history import history_file, keep, past_trials, read


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "state" / "rn50-advisor" / "trials.jsonl"


def test_what_is_kept_is_read_again_oldest_first(file: Path) -> None:
    assert keep(samples.PAST[:2], file) and keep(samples.PAST[2:], file)
    assert tuple(read(file)) == samples.PAST
    assert len(file.read_text().splitlines()) == len(samples.PAST)


def test_the_file_and_its_folder_are_private(file: Path) -> None:
    keep(samples.PAST, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600 and stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    file.chmod(0o644)
    keep(samples.PAST, file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    "broken",
    [
        b"",
        b"{",
        b"[]",
        b'{"rule":"DAT003"}',
        b"\xff\xfe",
        b"null",
        b'{"rule":' * 200_000,
        b'{"rule":"DAT003","knob":3}',
    ],
)
def test_broken_lines_are_skipped(file: Path, broken: bytes) -> None:
    keep(samples.PAST[:1], file)
    with file.open("ab") as opened:
        opened.write(broken + b"\n")
    keep(samples.PAST[1:2], file)
    assert tuple(read(file)) == samples.PAST[:2]


def test_a_line_that_was_cut_off_does_not_spoil_the_next(file: Path) -> None:
    keep(samples.PAST[:1], file)
    with file.open("ab") as opened:
        opened.write(b'{"rule":"DAT0')
    keep(samples.PAST[1:2], file)
    assert tuple(read(file)) == samples.PAST[:2]


def test_lines_of_several_at_once_stay_whole(file: Path) -> None:
    threads = [threading.Thread(target=lambda: [keep(samples.PAST, file) for _ in range(20)]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(read(file)) == 80 * len(samples.PAST)


def test_what_cannot_be_written_fails_no_trial(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert not keep(samples.PAST, tmp_path / "file" / "trials.jsonl")
    (tmp_path / "elsewhere").write_text("kept")
    (tmp_path / "link").symlink_to(tmp_path / "elsewhere")
    assert not keep(samples.PAST, tmp_path / "link") and (tmp_path / "elsewhere").read_text() == "kept"
    os.mkfifo(tmp_path / "pipe")
    assert not keep(samples.PAST, tmp_path / "pipe") and read(tmp_path / "pipe") == []
    assert read(tmp_path / "nothing") == [] and read(tmp_path) == []


@pytest.mark.parametrize(
    ("knob", "kept"),
    [
        ("DataLoader.num_workers=2, DataLoader.prefetch_factor=4", "DataLoader.num_workers=2, DataLoader.prefetch_factor=4"),
        ("unset OMP_NUM_THREADS", "unset OMP_NUM_THREADS"),
        ("torch.backends.cudnn.benchmark = False", "torch.backends.cudnn.benchmark = False"),
        ('torch.autocast("cuda", torch.bfloat16)', "torch.autocast(…, torch.bfloat16)"),
        ("NCCL_TOPO_FILE=/home/ann/topo.xml", "NCCL_TOPO_FILE=…"),
        ("WANDB_API_KEY=0123abcd", "WANDB_API_KEY=…"),
        ("torchrun --master_addr node17 --rdzv_endpoint=10.0.0.1:29400", "torchrun --master_addr … --rdzv_endpoint=…"),
        ("/home/ann/train.py", "…"),
    ],
)  # fmt: skip
def test_nothing_of_the_job_is_kept(knob: str, kept: str) -> None:
    tried = replace(samples.several(), trials=(replace(samples.WORKERS, knob=knob),))
    (past,) = past_trials(tried, day="2026-11-30", torch="2.15.0", device="NVIDIA H200")
    assert past.knob == kept


def test_only_trials_that_were_made_are_kept_with_their_circumstances() -> None:
    past = past_trials(samples.several(), day="2026-11-30", torch="2.15.0", device="CPU")
    assert [trial.rule for trial in past] == ["DAT003", "CPU009", "CMP001", "CMP014", "H2D001", "COM004"]
    assert {(trial.day, trial.torch, trial.device) for trial in past} == {("2026-11-30", "2.15.0", "CPU")}
    endless = replace(samples.WORKERS, measured=MeasuredSpeedup(float("inf"), 1.0, 2.0))
    assert past_trials(replace(samples.several(), trials=(endless,)), day="2026-11-30", torch="", device="") == []


def test_the_file_is_in_the_users_state_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    inside = Path("rn50-advisor") / "trials.jsonl"
    assert history_file({"XDG_STATE_HOME": "/var/state"}) == Path("/var/state") / inside
    for environment in ({}, {"XDG_STATE_HOME": ""}, {"XDG_STATE_HOME": "relative"}):
        assert history_file(environment) == tmp_path / ".local" / "state" / inside
