"""The demo's decisions: what to train on which machine, and what is tried."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DEMO = Path(__file__).resolve().parents[2] / "samples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> ModuleType:
    spec = importlib.util.spec_from_file_location("samples_demo", DEMO)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_a_trial_is_the_same_job_with_more_steps_than_it_needs(
    demo: ModuleType, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    setting = demo.choose_setting(demo.Machine(cores=2, gpus=0, bf16=False))
    started = []
    monkeypatch.setattr(demo, "run_to_end", lambda command, _: started.append(command) or 0)
    assert demo.try_advice(setting) == 0
    [command] = started
    own, job = command[: command.index("--")], command[command.index("--") + 1 :]
    assert own[1:3] == ["try", "latest"]
    assert job == [*demo.job_command(setting), "--steps", demo.TRIAL_STEPS]
    assert capsys.readouterr().out.startswith("$ rn50-advisor try latest")


@pytest.mark.parametrize(
    ("cores", "gpus", "ranks"),
    [(1, 0, 1), (2, 0, 1), (3, 0, 1), (4, 0, 2), (64, 0, 4), (8, 1, 1), (96, 8, 8), (2, 16, 8)],
)
def test_every_machine_gets_a_job_with_a_core_left_to_load(demo: ModuleType, cores: int, gpus: int, ranks: int) -> None:
    setting = demo.choose_setting(demo.Machine(cores, gpus, bf16=True))
    assert setting.ranks == ranks
    batch = int(setting.flags[setting.flags.index("--batch-size") + 1])
    assert setting.per_class * demo.CLASSES // (ranks * batch) >= 10, "an epoch must have enough steps to be typical"


@pytest.mark.parametrize(
    ("gpus", "bf16", "amp"), [(0, True, "bf16"), (0, False, "off"), (1, True, "bf16"), (1, False, "fp16")]
)
def test_mixed_precision_is_used_where_the_hardware_has_it(demo: ModuleType, gpus: int, bf16: bool, amp: str) -> None:
    flags = demo.choose_setting(demo.Machine(4, gpus, bf16)).flags
    assert flags[flags.index("--amp") + 1] == amp
