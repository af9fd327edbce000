"""One setting as a job of its own: what its loop took is what the result says, the advisor has watched it. No speed is judged here."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from advisor.bench.launch import TRAINER, Bench, cell_name
from advisor.core.benchmark import Options, Setting
from advisor.store.reader import read_recording

SMALL = Options("resnet18", 32, 10, 0.2, 0)
SETTING = Setting("fp32", True, 4, 1)


def trainer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_trainer", TRAINER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.torch
def test_a_settings_speed_is_that_of_its_steps_and_has_a_verdict(tmp_path: Path) -> None:
    cell = Bench(tmp_path, SMALL, "cpu", cores=1.0).measure(SETTING)
    assert cell.state == "measured", cell.why
    steps_s = json.loads((tmp_path / f"{cell_name(SETTING)}.json").read_text())["steps_s"]
    assert cell.images_per_s is not None and cell.steps == len(steps_s) >= 6
    rates = sorted(4 / seconds for seconds in steps_s)
    assert rates[0] <= cell.images_per_s.lo <= cell.images_per_s.value <= cell.images_per_s.hi <= rates[-1]
    assert cell.verdict is not None and sum(cell.shares.values()) == pytest.approx(1.0)
    recording = read_recording(tmp_path / cell.run)
    made = sum(int(rows["count"].sum()) for rows in recording.steps.values())
    assert made >= cell.steps, "the steps that were measured are among those that the advisor saw"


@pytest.mark.torch
def test_a_batch_that_does_not_fit_is_a_result(tmp_path: Path) -> None:
    huge = replace(SETTING, batch=100_000_000)
    bench = Bench(tmp_path, replace(SMALL, image_size=1024), "cpu")
    ended = subprocess.run(bench.command(huge, tmp_path / "huge.json"), capture_output=True, timeout=300, check=False)
    assert ended.returncode == 77, ended.stderr
    assert json.loads((tmp_path / "huge.json").read_text())["state"] == "oom"


@pytest.mark.torch
@pytest.mark.parametrize("devices", [1, 4])
def test_the_trainer_understands_what_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int) -> None:
    bench = Bench(tmp_path, replace(SMALL, workers=3), "cpu", data=tmp_path)
    command = bench.command(Setting("bf16", False, 16, devices, "real"), tmp_path / "r.json")
    assert ("torch.distributed.run" in command) == (devices > 1)
    monkeypatch.setattr(sys, "argv", command[command.index(str(TRAINER)) :])
    told: Namespace = trainer().parse()
    assert (told.precision, told.channels_last, told.batch) == ("bf16", False, 16)
    assert (told.model, told.image_size, told.classes, told.seconds) == ("resnet18", 32, 10, 0.2)
    assert (told.data, told.workers) == (tmp_path, 3)


@pytest.mark.parametrize(
    ("script", "state", "why"),
    [
        ("echo 'RuntimeError: no such kernel'; exit 1", "failed", "exit code 1: RuntimeError: no such kernel"),
        ("kill -9 $$", "oom", "killed, as the kernel does where memory ends"),
        ("exit 0", "failed", "it ended without a result"),
    ],
)
def test_what_becomes_of_a_child_that_fails_is_told(tmp_path: Path, script: str, state: str, why: str) -> None:
    """The interpreter is a stand-in: the advisor runs it like any other job."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o700)
    cell = Bench(tmp_path, SMALL, "cpu", str(python)).measure(SETTING)
    assert (cell.state, cell.images_per_s) == (state, None)
    assert cell.why.startswith(why)
    assert cell.run and read_recording(tmp_path / cell.run).meta.argv[0] == str(python)


@pytest.mark.torch
@pytest.mark.parametrize(
    ("usual_s", "given", "expected"),
    [
        (0.01, {}, (5, 1000)),
        (0.001, {}, (5, 5000)),  # no more than so many
        (1.0, {}, (5, 12)),
        (2.5, {}, (1, 6)),  # long steps: few of them
        (0.01, {"data": Path("pictures"), "workers": 16}, (32, 1000)),  # what was made ahead is used up first
        (1.0, {"data": Path("pictures"), "workers": 16}, (30, 12)),
    ],
)
def test_the_measurement_fills_its_time(usual_s: float, given: dict[str, object], expected: tuple[int, int]) -> None:
    told = Namespace(**{"seconds": 10.0, "warmup": 5, "min_steps": 12, "max_steps": 5000, "data": None, **given})
    assert trainer().steps_to_come(told, usual_s, None) == expected
