"""What the loop of a benchmark understands, how long it measures, and which Python it needs."""

from __future__ import annotations

import ast
import importlib.util
import itertools
import sys
from argparse import Namespace
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import pytest

from rn50_advisor.advisor.bench.bench_launch import TRAINER, Bench, rate_of
from rn50_advisor.advisor.model.documents.benchmark import Options, Setting

SMALL = Options("resnet18", 32, 10, 0.2, 0)
ASKED = {"seconds": 10.0, "warmup": 5, "min_steps": 12, "max_steps": 5000, "data": None}
REAL = {"data": Path("pictures"), "workers": 16}


def trainer() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_trainer", TRAINER)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.torch
@pytest.mark.parametrize("devices", [1, 4])
def test_the_trainer_parses_its_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: int) -> None:
    bench = Bench(tmp_path, replace(SMALL, workers=3), "cpu", data=tmp_path)
    command = bench.command(Setting("bf16", False, 16, devices, "real"), tmp_path / "r.json")
    assert any("torch.distributed.run" in part for part in command) == (devices > 1)
    monkeypatch.setattr(sys, "argv", command[command.index(str(TRAINER)) :])
    options: Namespace = trainer().parse()
    assert (options.precision, options.channels_last, options.batch) == ("bf16", False, 16)
    assert (options.model, options.image_size, options.classes, options.seconds) == ("resnet18", 32, 10, 0.2)
    assert (options.data, options.workers) == (tmp_path, 3)


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
    options, module = Namespace(**{**ASKED, **given}), trainer()
    assert (
        module.warm_up_steps(options, usual_s),
        len(carried_out(module, options, lambda _: usual_s, usual_s)),
    ) == expected


@pytest.mark.torch
def test_a_slow_disk_is_measured_by_the_clock() -> None:
    """Ten seconds were asked for, and 16 workers take 41 s to load a batch each: two rounds of them, and they give the true rate."""
    module = trainer()

    def rush(step: int) -> float:
        return 41 - 15 * 0.09 if step % 16 == 0 else 0.09

    steps_s = carried_out(module, Namespace(**{**ASKED, **REAL}), rush, 0.09)
    assert sum(steps_s) == pytest.approx(82)
    assert rate_of(steps_s, 256, together=16).value == pytest.approx(100, rel=0.01)


@pytest.mark.torch
def test_a_disk_that_turns_slow_does_not_stretch_what_was_planned_before() -> None:
    options = Namespace(**{**ASKED, "data": Path("pictures"), "workers": 1})
    steps_s = carried_out(trainer(), options, lambda step: 0.1 if step < 25 else 2.0, 0.1)
    assert len(steps_s) == 50, "only the quarter that was under way had been planned at the old pace"


def carried_out(module: ModuleType, options: Namespace, takes_s: Callable[[int], float], usual_s: float) -> list[float]:
    """The steps of a measurement, of which each takes so long."""
    steps_s: list[float] = []
    while more := module.steps_to_come(options, usual_s, steps_s):
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
