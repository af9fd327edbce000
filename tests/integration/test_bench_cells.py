"""One setting as a job of its own: what its loop took is what the result says, the advisor has watched it. No speed is judged here."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import json
import subprocess
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from rn50_advisor.advisor.bench.bench_launch import TRAINER, Bench, cell_name, rate_of
from rn50_advisor.advisor.model.documents.benchmark import Options, Setting, parse_benchmark
from rn50_advisor.advisor.run.launch.own_processes import module_command
from rn50_advisor.advisor.store.run_reader import read_recording

SMALL = Options("resnet18", 32, 10, 0.2, 0)
SETTING = Setting("fp32", True, 4, 1)
ASKED = {"seconds": 10.0, "warmup": 5, "min_steps": 12, "max_steps": 5000, "data": None}
REAL = {"data": Path("pictures"), "workers": 16}


def trainer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_trainer", TRAINER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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
    """Neither our processes nor torchrun's import what lies in the working directory, and all files tell the same."""
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


@pytest.mark.torch
@pytest.mark.parametrize("devices", [1, 4])
def test_the_trainer_understands_what_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int) -> None:
    bench = Bench(tmp_path, replace(SMALL, workers=3), "cpu", data=tmp_path)
    command = bench.command(Setting("bf16", False, 16, devices, "real"), tmp_path / "r.json")
    assert any("torch.distributed.run" in part for part in command) == (devices > 1)
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
        (0.01, REAL, (28, 1024)),  # what was made ahead is used up first, then come whole rounds of the workers
        (1.0, REAL, (28, 32)),
    ],
)
def test_the_measurement_fills_its_time(usual_s: float, given: dict[str, object], expected: tuple[int, int]) -> None:
    told, module = Namespace(**{**ASKED, **given}), trainer()
    assert (module.warm_up_steps(told, usual_s), len(carried_out(module, told, lambda _: usual_s, usual_s))) == expected


@pytest.mark.torch
def test_a_slow_disk_is_measured_by_the_clock() -> None:
    """Ten seconds were asked for, and 16 workers take 41 s to load a batch each: two rounds of them, and they tell the truth."""
    module = trainer()

    def rush(step: int) -> float:
        return 41 - 15 * 0.09 if step % 16 == 0 else 0.09

    steps_s = carried_out(module, Namespace(**{**ASKED, **REAL}), rush, 0.09)
    assert sum(steps_s) == pytest.approx(82)
    assert rate_of(steps_s, 256, together=16).value == pytest.approx(100, rel=0.01)


@pytest.mark.torch
def test_a_disk_that_turns_slow_does_not_stretch_what_was_planned_before() -> None:
    told = Namespace(**{**ASKED, "data": Path("pictures"), "workers": 1})
    steps_s = carried_out(trainer(), told, lambda step: 0.1 if step < 25 else 2.0, 0.1)
    assert len(steps_s) == 50, "only the quarter that was under way had been planned at the old pace"


def carried_out(module: ModuleType, told: Namespace, takes_s: Callable[[int], float], usual_s: float) -> list[float]:
    """The steps of a measurement, of which each takes so long."""
    steps_s: list[float] = []
    while more := module.steps_to_come(told, usual_s, steps_s):
        portion = [takes_s(len(steps_s) + n) for n in range(more)]
        usual_s = sum(portion) / more
        steps_s += portion
    return steps_s


@pytest.mark.torch
def test_an_older_python_and_torch_can_train(monkeypatch: pytest.MonkeyPatch) -> None:
    """The interpreter that trains is the user's: `pairwise` is of Python 3.10, and `OutOfMemoryError` was not always there."""
    import torch

    ast.parse(TRAINER.read_text(), feature_version=(3, 9))
    module = trainer()
    monkeypatch.delattr(itertools, "pairwise", raising=False)
    monkeypatch.delattr(torch, "OutOfMemoryError", raising=False)
    clock = module.StepClock(torch.device("cpu"))
    clock.marks = [1.0, 1.5, 3.0]
    assert clock.steps_s() == [0.5, 1.5]

    def fails(*asked: object) -> None:
        raise RuntimeError("no such kernel")

    monkeypatch.setattr(module, "measure", fails)
    monkeypatch.setattr(sys, "argv", ["trainer.py", "--result=unused.json"])
    with pytest.raises(RuntimeError, match="no such kernel"):
        module.main()
