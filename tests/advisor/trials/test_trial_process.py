"""The process that records a job of a trial says when the job runs and how it ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.launch.own_processes import module_command


def news_of(argv: Sequence[str], tmp_path: Path) -> list[str]:
    reads, writes = os.pipe()
    plan = {"argv": list(argv), "run_folder": str(tmp_path), "trial": {}, "news": writes, "overhead_budget": 0.02}
    command = module_command("rn50_advisor.advisor.trials.trial_process", [json.dumps(plan)])
    process = subprocess.Popen(command, pass_fds=[writes], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(writes)
    with os.fdopen(reads) as told:
        lines = told.read().splitlines()
    assert process.wait() == 0
    return lines


@pytest.mark.parametrize(
    ("code", "end"), [("", "end 0"), ("raise SystemExit(7)", "end 7"), ("import os; os.kill(os.getpid(), 9)", "end -9")]
)
def test_the_jobs_pid_and_its_end_are_told_and_the_job_holds_no_end_of_the_pipe(
    code: str, end: str, tmp_path: Path
) -> None:
    started, ended = news_of([sys.executable, "-c", code], tmp_path)
    assert started.startswith("job ") and started.split()[1].isdigit()
    assert ended.startswith(end)


def test_a_command_that_does_not_exist_ends_with_what_is_wrong(tmp_path: Path) -> None:
    [ended] = news_of(["no-such-command-here"], tmp_path)
    assert ended.startswith("end 127") and "no-such-command-here" in ended
