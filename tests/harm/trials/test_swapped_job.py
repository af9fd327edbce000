"""A job whose loaders' options are exchanged while it trains says the same as alone, and the recorder knows its loaders and workers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.torch

JOB = Path(__file__).with_name("swapped_job.py")
STEPS = 3 * 32 + 3 * 16


def run(*arguments: object) -> tuple[int, str, str]:
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(JOB), *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=140, check=False)
    return done.returncode, done.stdout, done.stderr


def test_a_job_whose_loaders_are_swapped_all_the_time(tmp_path: Path) -> None:
    alone, swapped = run(), run(tmp_path)
    assert alone[0] == 0 and "a broken sample comes" in alone[2] and "ValueError: a broken sample" in alone[1], alone
    assert swapped == alone
    report = json.loads((tmp_path / "report").read_text())
    assert report["errors"] == 0
    assert [loader["training"] for loader in report["loaders"][:2]] == [True, True]
    assert [loader["num_workers"] for loader in report["loaders"][:2]] == [0, 2], "as the job made them"
    assert set(report["fetched"]) <= {0, 1, 2, 3}
    assert report["steps"] >= STEPS - 1
    trial, swap = report["trial"], report["swap"]
    assert [step for step, _ in trial["switches"]] == list(range(4, report["steps"] + 1, 3)), (
        "at the steps that were asked for"
    )
    assert trial["refused"] == [] and all(times >= STEPS // 12 - 1 for _, times in trial["applied"])
    assert [each["loader"] for each in swap["loaders"]] == [0, 1] and swap["refused"] == []
    assert all(each["swaps"] >= 10 and each["epochs"] >= 1 for each in swap["loaders"]), swap
    workers = (tmp_path / "loaders").read_text().split()
    assert set(workers) == {"0", "1"} and workers == sorted(workers)
