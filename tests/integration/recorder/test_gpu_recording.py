"""`run` on a machine with GPUs that the fake driver plays: from the driver to the finding, through agent, run file and report."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from samples.gpus.machines import A100, MACHINES, machine, uuid

from cli_process import advisor

JOB = Path(__file__).with_name("gpu_job.py")
STEPS = "150"  # three seconds


def report_of(driver: Path, script: list[str], folder: Path, steps: str = STEPS) -> dict[str, Any]:
    (folder / "script").write_text("\n".join(script) + "\n")
    env = {"LD_LIBRARY_PATH": str(driver), "FAKE_NVML_SCRIPT": str(folder / "script")}
    job = [sys.executable, str(JOB), steps, uuid(1).removeprefix("GPU-"), uuid(0).removeprefix("GPU-")]
    done = advisor("run", "--name", "gpus", "--", *job, cwd=folder, env=env)
    assert done.returncode == 0, done.stderr
    shown = advisor("report", "gpus", "--format", "json", cwd=folder)
    assert shown.returncode == 0, shown.stderr
    report = json.loads(shown.stdout)
    assert isinstance(report, dict)
    return report


@pytest.fixture(scope="module")
def hot(fake_driver: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Rank 1 trains on GPU 0, which is too hot."""
    held = ["gpu 0 field.270 0 +600000000", "gpu 0 sm_clock 700", "gpu 0 temp 92"]
    return report_of(fake_driver, [*machine(A100, 2), *held], tmp_path_factory.mktemp("hot"))


def test_the_throttled_gpu_is_found_with_its_rank(hot: dict[str, Any]) -> None:
    (finding,) = [finding for finding in hot["findings"] if finding["rule"] == "GPU001"]
    assert finding["scope"]["gpus"] == [0] and finding["scope"]["ranks"] == [1]


def test_the_run_knows_its_machine(hot: dict[str, Any]) -> None:
    environment = hot["environment"]
    assert [gpu["uuid"] for gpu in environment["gpus"]] == [uuid(0), uuid(1)]
    assert environment["gpu_paths"] == [{"a": 0, "b": 1, "path": "NV12", "p2p": "OK"}]
    assert (environment["driver"], environment["driver_cuda"]) == ("575.57.08", "12.9")


def test_each_strip_names_the_rank_on_its_gpu(hot: dict[str, Any]) -> None:
    assert [(strip["index"], strip["ranks"], strip["temp_c"]) for strip in hot["gpus"]] == [(0, "1", 92), (1, "0", 59)]
    assert hot["gpus"][0]["trouble"].startswith("throttled") and hot["gpus"][1]["trouble"] == ""


def test_a_driver_that_does_not_fit_its_library_is_a_gap_and_no_healthy_run(fake_driver: Path, tmp_path: Path) -> None:
    report = report_of(fake_driver, MACHINES["mismatch"](), tmp_path, steps="60")
    assert report["verdict"]["state"] == "inconclusive" and "not observed" in report["verdict"]["title"]
    (gap,) = [gap for gap in report["gaps"] if gap["metric"] == "gpu.*"]
    assert "different versions" in gap["reason"] and "reboot" in gap["hint"]
    assert report["gpus"] == [] and report["step_time"]["steps"] > 50
