"""Real jobs whose threads train: they end as they do alone, and one thread's steps are recorded."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")


JOB = Path(__file__).with_name("threads.py")


def played(name: str, folder: Path, *arguments: object) -> dict[str, Any]:
    """The report of job `name` on its recorder."""
    command = [sys.executable, str(JOB), name, str(folder), *map(str, arguments)]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert ran.returncode == 0, (ran.returncode, ran.stderr)
    report: dict[str, Any] = json.loads(ran.stdout.splitlines()[-1])
    return report


def test_jobs_that_train_in_threads_end_as_they_do_alone(tmp_path: Path) -> None:
    report = played("together", tmp_path, 8)
    assert report == {"ends": {"0": report["jobs"]}, "jobs": report["jobs"]}


@pytest.mark.parametrize("job", ["hogwild", "after_each_other", "hooks_in_threads", "checkpointed"])
def test_real_loops_in_threads_are_recorded(tmp_path: Path, job: str) -> None:
    report = played(job, tmp_path)
    assert report["errors"] == 0
    assert report["several_threads_train"] == (job == "hogwild")
    assert report["steps"] >= report["expected"]
    assert report["no_optimizer"] == 0
    assert report["rings"] == 1
