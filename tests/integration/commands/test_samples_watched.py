"""The sample training script under the advisor, started in each way: a whole budget, and what holds it back."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from cli_process import advisor

pytestmark = pytest.mark.torch

SAMPLES = Path(__file__).resolve().parents[3] / "samples"
TRAIN = str(SAMPLES / "train.py")
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2", TRAIN)
SPAWN = (sys.executable, str(SAMPLES / "train_spawn.py"), "--processes", "2", "--")
# Decoding a picture takes as long as computing four of this size.
JOB = (
    "--device",
    "cpu",
    "--model",
    "squeezenet1_1",
    "--image-size",
    "32",
    "--batch-size",
    "4",
    "--workers",
    "0",
    "--no-eval",
)
STEPS = 40


@pytest.fixture(scope="module")
def pictures(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("pictures")
    command = [sys.executable, str(SAMPLES / "make_images.py"), str(folder), "--classes", "2", "--per-class", "40"]
    subprocess.run([*command, "--val-per-class", "1"], check=True)
    return folder


@pytest.mark.parametrize(
    ("command", "ranks"), [((sys.executable, TRAIN), 1), (TORCHRUN, 2), (SPAWN, 2)], ids=["python", "torchrun", "spawn"]
)
def test_each_launchers_ranks_get_a_whole_budget_and_a_cause(
    command: tuple[str, ...], ranks: int, pictures: Path, tmp_path: Path
) -> None:
    options = ("run", "--no-tui", "--run-dir", tmp_path / "runs", "--report", tmp_path / "report.json", "--")
    job = (*command, *JOB, "--data", str(pictures), "--steps", str(STEPS))
    done = advisor(*options, *job, cwd=tmp_path, env={"OMP_NUM_THREADS": "1"})
    assert done.returncode == 0, done.stderr.decode()
    report = json.loads((tmp_path / "report.json").read_text())
    assert sorted(report["budget"]["per_rank"]) == [str(rank) for rank in range(ranks)]
    for phases in (report["budget"]["critical"], *report["budget"]["per_rank"].values()):
        assert phases["unattributed"] <= 0.05 * sum(phases.values())
    assert "DAT003" in [finding["rule"] for finding in report["findings"]]
    assert not [gap for gap in report["gaps"] if gap["metric"].startswith("ring")]
