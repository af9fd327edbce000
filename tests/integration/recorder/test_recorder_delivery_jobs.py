"""Delivery of batches in real training: each fetch of steps that gather several, time to send and to pin."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from test_recorder_jobs import JOBS, rings, run

from launcher_harness import python, run_to_end
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.probes.rank.layout import BATCH_FIELDS, KIND_BATCH, KIND_SPAN, SPAN_FIELDS, SPAN_LABELS

pytestmark = pytest.mark.torch

WAYS = ["gathered", "gathered by workers that live on"]


def spans(folder: Path, label: str) -> list[dict[str, int]]:
    [reader] = rings(folder)
    rows = [dict(zip(SPAN_FIELDS, values, strict=True)) for _, values in reader.drain().rows[KIND_SPAN]]
    return [row for row in rows if SPAN_LABELS[row["label"]] == label]


def test_fetches_of_clocked_steps_are_noted_where_a_step_gathers_several(tmp_path: Path) -> None:
    done = run("variants.py", "gathered", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    fetches = spans(tmp_path, "fetch")
    steps = sorted({row["step"] for row in fetches})
    assert len(steps) >= 5
    for step in steps:
        assert [row["count"] for row in fetches if row["step"] == step] == [
            n % 14 for n in range(4 * step, 4 * step + 4)
        ]
    assert all(row["t_start_ns"] <= row["t_end_ns"] and row["site"] == 0 for row in fetches)


def test_plain_steps_are_not_noted_fetch_by_fetch(tmp_path: Path) -> None:
    assert run("variants.py", "pinned", 1, folder=tmp_path).returncode == 0
    assert not spans(tmp_path, "fetch")


@pytest.mark.parametrize("way", WAYS)
def test_a_recorded_run_holds_what_handing_over_takes_though_steps_gather_several(run_folder: Path, way: str) -> None:
    done = run_to_end(run_folder / "r", [sys.executable, str(JOBS / "variants.py"), way])
    assert done.returncode == 0, done.stderr
    analysis = analyse(read_recording(run_folder / "r"))
    assert analysis.value("step.batches", 0) == 4.0
    assert "fetch.behind_s" not in analysis.missing, analysis.missing["fetch.behind_s"]
    assert analysis.value("fetch.hand_over_s", 0) > 0
    assert analysis.value("fetch.sending_s", 0) > 0
    assert analysis.overhead.worker_share is not None and 0 < analysis.overhead.worker_share < 1


def test_what_the_user_allows_is_passed_to_the_job(run_folder: Path) -> None:
    job = python("import os; print(open(os.environ['RN50_ADVISOR_DIR'] + '/budget').read())")
    assert run_to_end(run_folder / "r", job, options={"overhead_budget": 0.05}).stdout == b"0.05\n"


def test_workers_record_what_sending_takes(tmp_path: Path) -> None:
    assert run("variants.py", "workers", folder=tmp_path).returncode == 0
    made = [payload for reader in rings(tmp_path, "worker") for _, payload in reader.drain().rows[KIND_BATCH]]
    sending = [dict(zip(BATCH_FIELDS, payload, strict=True))["sending_ns"] for payload in made]
    assert len(sending) == 12 and min(sending) == 0 and sum(sending) > 0, "nothing is sent before the first batch"


@pytest.mark.parametrize("workers", [0, 2])
def test_pinning_is_recorded_and_the_job_is_the_same(tmp_path: Path, workers: int) -> None:
    alone, watched = run("variants.py", "pinned", workers), run("variants.py", "pinned", workers, folder=tmp_path)
    assert watched.returncode == alone.returncode == 0, watched.stderr
    assert (watched.stdout, watched.stderr) == (alone.stdout, alone.stderr)
    pins = spans(tmp_path, "pin")
    batches = sum(row["count"] for row in pins)
    # amid a fetch one in each clocked step, the first before the process was known to train; a thread all that there are
    assert len(pins) >= 3 and (len(pins) <= batches <= len(pins) + 1 if workers == 0 else len(pins) < batches <= 12)
    assert all(row["t_end_ns"] > row["t_start_ns"] and row["site"] == 0 for row in pins)
    [facts] = tmp_path.glob("facts-*.json")
    assert "unpatched" not in json.loads(facts.read_text())


# The thread that pins may fail once more, or worse, where it meets the end of the process amid a batch: so it is the last one.
@pytest.mark.parametrize(("workers", "broken"), [(0, 1), (1, 23)])
def test_what_cannot_be_pinned_ends_the_job_with_the_same_words(tmp_path: Path, workers: int, broken: int) -> None:
    alone, watched = (run("variants.py", "pinned", workers, broken, folder=folder) for folder in (None, tmp_path))
    assert watched.returncode == alone.returncode == 1 and "this cannot be pinned" in alone.stderr
    assert (watched.stdout, watched.stderr) == (alone.stdout, alone.stderr)
