"""The result of `try` beside its run: private, in one step, never over another's file, and only as far as it is sound."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import trial_samples as samples
from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.model.trials import Tried
from rn50_advisor.advisor.store.kept_trials import TRIED_NAME, UnreadableTrials, holds_tried, keep_tried, read_tried
from written_runs import written_run

STARTED_S = 1.7e9


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return written_run(tmp_path / "run", started_unix_s=STARTED_S)


def test_a_result_comes_back_as_it_was_is_private_and_the_latest_wins(run: Path) -> None:
    assert read_tried(run, STARTED_S) is None and not holds_tried(run)
    keep_tried(run, samples.without_gain())
    keep_tried(run, samples.several())
    assert read_tried(run, STARTED_S) == replace(samples.several(), run_started_unix_s=STARTED_S)
    assert holds_tried(run)
    assert (run / TRIED_NAME).stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in run.iterdir()) == ["run.sqlite", TRIED_NAME]


@pytest.mark.parametrize("content", ["my own notes", '{"accuracy": 0.76}', "", "[]"])
def test_a_file_that_is_not_ours_stays(run: Path, content: str) -> None:
    (run / TRIED_NAME).write_text(content)
    with pytest.raises(AdvisorError, match="no result of try for this run"):
        keep_tried(run, samples.several())
    assert (run / TRIED_NAME).read_text() == content and not holds_tried(run)


def test_a_link_is_neither_followed_nor_replaced(run: Path, tmp_path: Path) -> None:
    keep_tried(run, samples.several())
    elsewhere = (run / TRIED_NAME).rename(tmp_path / "elsewhere.json")
    before = elsewhere.read_bytes()
    (run / TRIED_NAME).symlink_to(elsewhere)
    with pytest.raises(UnreadableTrials, match="cannot be read"):
        read_tried(run, STARTED_S)
    with pytest.raises(AdvisorError):
        keep_tried(run, samples.without_gain())
    assert elsewhere.read_bytes() == before and (run / TRIED_NAME).is_symlink()


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_file_is_neither_read_nor_replaced(run: Path, make: Callable[[Path], None]) -> None:
    make(run / TRIED_NAME)
    with pytest.raises(UnreadableTrials):
        read_tried(run, STARTED_S)
    with pytest.raises(AdvisorError):
        keep_tried(run, samples.several())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_is_an_error_of_the_system(run: Path) -> None:
    run.chmod(0o500)
    try:
        with pytest.raises(OSError, match="denied"):
            keep_tried(run, samples.several())
    finally:
        run.chmod(0o700)


def test_of_another_run_it_is_not_shown(run: Path, tmp_path: Path) -> None:
    other = written_run(tmp_path / "other", started_unix_s=STARTED_S + 1)
    keep_tried(run, samples.several())
    (run / TRIED_NAME).rename(other / TRIED_NAME)
    with pytest.raises(UnreadableTrials, match="not of this run"):
        read_tried(other, STARTED_S + 1)
    assert not holds_tried(other)


def test_secrets_of_the_command_are_masked_and_its_bytes_survive(run: Path) -> None:
    keep_tried(run, replace(samples.several(), argv=("train.py", "--api-key", "hunter2", "caf\udce9")))
    assert "hunter2" not in (run / TRIED_NAME).read_text()
    found = read_tried(run, STARTED_S)
    assert found is not None and found.argv == ("train.py", "--api-key", "***", "caf\udce9")


def change(*path: str | int, to: object) -> Callable[[dict[str, Any]], object]:
    def apply(document: dict[str, Any]) -> None:
        place: Any = document
        for step in path[:-1]:
            place = place[step]
        place[path[-1]] = to

    return apply


DAMAGES = {
    "a newer schema": change("schema", to="rn50-advisor/try/2"),
    "no trials": lambda document: document.pop("trials"),
    "trials that are words": change("trials", to="faster"),
    "a trial that is a number": change("trials", 0, to=7),
    "an unknown outcome": change("trials", 0, "outcome", to="splendid"),
    "a speed-up in words": change("trials", 0, "measured", "speedup", to="2×"),
    "a speed-up that is no number": change("trials", 0, "measured", "speedup", to=float("nan")),
    "an infinite prediction": change("trials", 0, "predicted", "hi", to=float("inf")),
    "a negative speed-up": change("together", "lo", to=-1.0),
    "pairs without end": change("trials", 0, "measured", "pairs", to=10**30),
    "a title that is a list": change("trials", 0, "title", to=["x"]),
    "a diff that is a number": change("trials", 0, "diff", to=1),
    "no job": change("job", to=None),
    "arguments that are no list": change("job", "argv", to="train.py"),
    "notes in notes": change("notes", to=[["x"]]),
    "a time that is true": change("took_s", to=[]),
    "no run": change("run", to=None),
    "a run of another time": change("run", "started_unix_s", to=1.0),
    "a depth": change("trials", 0, "more", to=json.loads("[" * 200 + "]" * 200)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_what_no_advisor_wrote_is_refused_in_one_line(run: Path, damage: str) -> None:
    keep_tried(run, samples.several())
    document = json.loads((run / TRIED_NAME).read_text())
    DAMAGES[damage](document)
    (run / TRIED_NAME).write_text(json.dumps(document))
    with pytest.raises(UnreadableTrials) as why:
        read_tried(run, STARTED_S)
    assert str(why.value) and "\n" not in str(why.value) and len(str(why.value)) < 300


@pytest.mark.parametrize("data", [b"\x00\xff" * 100, b"[" * 100_000, b"9" * 10_000, b'{"schema": "rn50-advisor/try/1"'])
def test_bytes_that_are_no_document_are_refused(run: Path, data: bytes) -> None:
    (run / TRIED_NAME).write_bytes(data)
    with pytest.raises(UnreadableTrials):
        read_tried(run, STARTED_S)


def test_a_huge_file_is_not_read(run: Path) -> None:
    with (run / TRIED_NAME).open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(UnreadableTrials, match="more than 1 MiB"):
        read_tried(run, STARTED_S)


def test_long_texts_and_many_trials_are_cut_and_a_long_diff_is_left_out(run: Path) -> None:
    long = "x" * 9_000
    trial = replace(samples.WORKERS, rule=long, title=long, knob=long, reason=long, change=long, diff=None)
    keep_tried(run, Tried((trial,) * 10, (long,), notes=(long,) * 30, took_s=1.0))
    found = read_tried(run, STARTED_S)
    assert found is not None and len(found.notes) == 20
    texts = [text for each in found.trials for text in (each.rule, each.title, each.knob, each.reason, each.change)]
    assert max(map(len, texts)) == 4_000 and len(found.argv[0]) == 500
    keep_tried(run, Tried((replace(samples.WORKERS, diff="+x\n" * 9_000),) * 150, ()))
    found = read_tried(run, STARTED_S)
    assert found is not None and len(found.trials) == 100 and {each.diff for each in found.trials} == {None}
    assert found.trials[0].change == samples.WORKERS.change


def test_a_result_that_is_too_large_is_not_kept(run: Path) -> None:
    with pytest.raises(AdvisorError, match="MiB"):
        keep_tried(run, Tried((replace(samples.WORKERS, reason="x" * 50_000),) * 30, ()))
    assert not (run / TRIED_NAME).exists()
