"""Training scripts as published, run from the installed package: same output and exit code with the advisor, and their steps seen."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import pytest

from cli_process import environment
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import diagnose
from rn50_advisor.probes.rank.layout import FLAG_TAIL

pytestmark = pytest.mark.torch

TORCHRUN = [str(Path(sys.executable).with_name("torchrun")), "--standalone", "--nproc-per-node=2"]
# Of each rank. `test_script`: two checks, each of five trainings (by hand, then by accelerate) over three epochs of four batches.
# `test_sync`: 80 samples in batches of 16, shared by the ranks.
STEPS = {"test_script": 2 * 5 * 3 * 4, "test_sync": 3}


def scripts() -> Path:
    found = find_spec("accelerate")
    if found is None or found.origin is None:
        pytest.skip("accelerate not installed: pip install '.[dev]'")
    return Path(found.origin).parent / "test_utils" / "scripts"


def run(command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    folder.mkdir()
    env = environment(OMP_NUM_THREADS="1", ACCELERATE_USE_CPU="true")
    return subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=300, check=False)


@pytest.mark.parametrize("script", STEPS)
def test_accelerates_own_trainings_run_alike_and_their_steps_are_seen(tmp_path: Path, script: str) -> None:
    job = [*TORCHRUN, str(scripts() / f"{script}.py")]
    advisor = str(Path(sys.executable).with_name("rn50-advisor"))
    alone = run(job, tmp_path / "alone")
    watched = run([advisor, "run", "--no-tui", "--run-dir", str(tmp_path / "runs"), "--", *job], tmp_path / "watched")
    assert watched.returncode == alone.returncode == 0, watched.stderr
    # the two ranks' lines mix anew each time
    assert Counter(watched.stdout) == Counter(alone.stdout)
    assert not list((tmp_path / "alone").iterdir()) and not list((tmp_path / "watched").iterdir())
    [run_file] = (tmp_path / "runs").glob("*/run.sqlite")
    recording = read_recording(run_file.parent)
    # nothing marks the end of the last step: its time is in the row of what follows the last one
    seen = {rank: int(((steps["flags"] & FLAG_TAIL) == 0).sum()) for rank, steps in recording.steps.items()}
    assert seen == dict.fromkeys(range(2), STEPS[script] - 1)
    assert diagnose(recording).verdict.state != "failed"
