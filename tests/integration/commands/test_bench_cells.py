"""One setting as a job of its own: what its loop took is what the result says, the advisor has watched it. No speed is judged here."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from rn50_advisor.advisor.bench.bench_launch import Bench, cell_name
from rn50_advisor.advisor.model.documents.benchmark import Options, Setting, parse_benchmark
from rn50_advisor.advisor.run.launch.own_processes import module_command
from rn50_advisor.advisor.store.run_reader import read_recording

SMALL = Options("resnet18", 32, 10, 0.2, 0)
SETTING = Setting("fp32", True, 4, 1)


@pytest.mark.torch
def test_a_settings_speed_is_that_of_its_steps_and_has_a_verdict(tmp_path: Path, images: Path) -> None:
    """On real pictures, which a worker loads."""
    real = replace(SETTING, data="real")
    cell = Bench(tmp_path, replace(SMALL, workers=1), "cpu", data=images, cores=1.0).measure(real)
    assert cell.state == "measured", cell.why
    steps_s = json.loads((tmp_path / f"{cell_name(real)}.json").read_text())["steps_s"]
    assert cell.images_per_s is not None and cell.steps == len(steps_s) >= 6
    rates = sorted(4 / seconds for seconds in steps_s)
    assert rates[0] <= cell.images_per_s.lo <= cell.images_per_s.value <= cell.images_per_s.hi <= rates[-1]
    assert cell.verdict is not None and sum(cell.shares.values()) == pytest.approx(1.0)
    recording = read_recording(tmp_path / cell.run)
    made = sum(int(rows["count"].sum()) for rows in recording.steps.values())
    assert made >= cell.steps, "the steps that were measured are among those that the advisor saw"
    assert any(process.role == "worker" for process in recording.processes)


@pytest.mark.torch
def test_the_command_trains_on_two_ranks_in_a_project_with_names_like_ours(tmp_path: Path) -> None:
    """Neither our processes nor torchrun's import what lies in the working directory, and all files hold the same."""
    for name in ("advisor", "probes", "rules", "queue"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    options = "--device cpu --devices 2 --precisions fp32 --layout last --no-sweep --batch 4"
    options += " --model resnet18 --image-size 32 --classes 10 --seconds 0.2 -o b.json -o b.md -o b.html"
    command = module_command("rn50_advisor.advisor.cli", ["bench", *options.split()])
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    assert ended.returncode == 0, ended.stderr
    [kept] = (tmp_path / "runs").glob("*-bench*/bench.json")
    assert kept.read_text() == (tmp_path / "b.json").read_text()
    assert (
        "fastest:" in ended.stdout
        and "fastest:" in (tmp_path / "b.md").read_text()
        and (tmp_path / "b.html").read_text()
    )
    [cell] = parse_benchmark(kept.read_text()).cells
    assert (cell.state, cell.setting.devices) == ("measured", 2), cell.why
    assert len(read_recording(kept.parent / cell.run).steps) == 2, "both ranks were watched"


@pytest.mark.torch
def test_a_batch_that_does_not_fit_is_a_result(tmp_path: Path) -> None:
    huge = replace(SETTING, batch=100_000_000)
    bench = Bench(tmp_path, replace(SMALL, image_size=1024), "cpu")
    ended = subprocess.run(bench.command(huge, tmp_path / "huge.json"), capture_output=True, timeout=300, check=False)
    assert ended.returncode == 77, ended.stderr
    assert json.loads((tmp_path / "huge.json").read_text())["state"] == "oom"


@pytest.mark.parametrize(
    ("script", "state", "why"),
    [
        ("echo 'RuntimeError: no such kernel'; exit 1", "failed", "exit code 1: RuntimeError: no such kernel"),
        ("kill -9 $$", "oom", "killed, as the kernel does where memory ends"),
        ("exit 0", "failed", "it ended without a result"),
    ],
)
def test_what_becomes_of_a_child_that_fails_is_reported(tmp_path: Path, script: str, state: str, why: str) -> None:
    """The interpreter is a stand-in: the advisor runs it like any other job."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    cell = Bench(tmp_path, SMALL, "cpu", str(python)).measure(SETTING)
    assert (cell.state, cell.images_per_s) == (state, None)
    assert cell.why.startswith(why)
    assert cell.run and read_recording(tmp_path / cell.run).meta.argv[0] == str(python)
