"""The wrappers that mark steps stand for torch's functions where code looks for these."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.probes.rank.patches import mark_wrappers
from rn50_advisor.probes.rank.recorder import Recorder


def test_a_scaler_that_is_switched_off_is_the_optimizer_alone() -> None:
    class Scaler:
        _enabled = False

        def step(self, optimizer: Any) -> str:
            return "stepped"

    recorder: Any = types.SimpleNamespace(active=True)  # any other attribute raises
    mark_wrappers.mark_scaled_updates(
        types.SimpleNamespace(amp=types.SimpleNamespace(grad_scaler=types.SimpleNamespace(GradScaler=Scaler))), recorder
    )
    assert Scaler().step(object()) == "stepped"


@pytest.mark.torch
def test_scripted_code_may_call_what_a_wrapper_stands_for() -> None:
    import torch

    def wrapper() -> None:
        raise AssertionError("an operator stands for it")

    builtins = torch.jit._builtins
    before = list(builtins._builtin_ops)
    try:
        mark_wrappers.register_with_jit(next(f for f, op in before if op == "aten::backward"), wrapper)
        builtins._get_builtin_table()
        mark_wrappers.register_with_jit(next(f for f, op in before if op == "aten::backward"), wrapper)
        assert builtins._find_builtin(wrapper) == "aten::backward"
    finally:
        builtins._builtin_ops[:] = before
        builtins._builtin_table.pop(id(wrapper), None)


def test_an_optimizer_made_after_a_fork_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hooks: list[Any] = []
    module = types.SimpleNamespace(
        register_optimizer_step_pre_hook=hooks.append,
        register_optimizer_step_post_hook=hooks.append,
        Optimizer=type("Optimizer", (), {"__init__": lambda optimizer: None}),
    )
    torch: Any = types.SimpleNamespace(
        is_grad_enabled=lambda: True, compiler=types.SimpleNamespace(is_dynamo_compiling=lambda: False)
    )
    monkeypatch.setitem(sys.modules, "torch.optim", types.SimpleNamespace(optimizer=module))  # type: ignore[arg-type]
    recorder = Recorder(torch, str(tmp_path))
    mark_wrappers.mark_updates(torch, recorder)
    recorder.forget()
    made: list[Any] = []
    monkeypatch.setattr(recorder.passes.optimizers, "made", made.append)
    optimizer = module.Optimizer()
    assert made == [optimizer]
