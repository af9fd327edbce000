"""The demo's decisions: what to train on which machine, which fix to apply, and honesty about predictions."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

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


def report(*findings: dict[str, Any], root: str | None = "DAT003") -> dict[str, Any]:
    return {"verdict": {"rule": root, "title": "t", "summary": "", "state": "bottleneck"}, "findings": list(findings)}


def finding(
    rule: str, *, title: str = "", change: str = "", speedup: tuple[float, float] | None = None
) -> dict[str, Any]:
    saving = {"speedup": list(speedup)} if speedup else None
    return {"rule": rule, "fixes": [{"title": title, "change": change, "where": None}], "saving": saving}


@pytest.mark.parametrize(
    ("given", "workers", "rule"),
    [
        (report(finding("DAT003", change="DataLoader(..., num_workers=3, persistent_workers=True)")), 3, "DAT003"),
        (report(finding("DAT003", title="num_workers=0 → 12, persistent_workers=True")), 12, "DAT003"),
        # the verdict's own finding wins over one that stands before it
        (report(finding("DAT004", change="num_workers=9"), finding("DAT003", change="num_workers=2")), 2, "DAT003"),
        (report(finding("COM001", change="bucket_cap_mb=50"), root="COM001"), None, None),
        # taking the workers away is no number of workers to try here
        (report(finding("DAT007", change="num_workers=0"), root="DAT007"), None, None),
        (report(root=None), None, None),
    ],
)
def test_the_worker_count_comes_from_the_report(
    demo: ModuleType, given: dict[str, Any], workers: int | None, rule: str | None
) -> None:
    advice = demo.advised_workers(given)
    assert (advice and (advice[0], advice[1]["rule"])) == (workers and (workers, rule))


def test_without_advice_the_demo_says_so_and_predicts_nothing(
    demo: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    machine = demo.Machine(cores=8, gpus=0, bf16=True)
    workers, predicted = demo.choose_fix(machine, demo.choose_setting(machine), report(root=None))
    assert (workers, predicted) == (1, None)
    assert "advises no number of workers" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "after", "predicted", "says"),
    [
        (100.0, 150.0, (1.4, 1.6), "The prediction held"),
        (100.0, 140.0, (1.4, 1.6), "The prediction held"),  # on the line
        (100.0, 110.0, (1.4, 1.6), "promised at least 27% more"),
        (100.0, 80.0, (1.4, 1.6), "The prediction missed"),
        (100.0, 200.0, (1.4, 1.6), "too cautious by 25%"),
        (100.0, 152.0, (1.58, 1.58), "The prediction missed"),
        (100.0, 150.0, None, "nothing was predicted"),
    ],
)
def test_a_missed_prediction_is_called_missed(
    demo: ModuleType, before: float, after: float, predicted: tuple[float, float] | None, says: str
) -> None:
    likely = predicted and sum(predicted) / 2
    text = demo.describe_change(before, after, predicted and {"speedup": predicted, "likely": likely})
    assert says in text
    assert f"{after / before:.2f}x" in text and (not likely or f"about {likely:.2f}x" in text)


def test_what_disturbed_either_run_from_outside_is_named_once(demo: ModuleType) -> None:
    neighbours = {"rule": "CPU003", "title": "Other processes keep 1.2 cores busy"}
    before, after = report(finding("DAT003") | {"title": "x"}, neighbours), report(neighbours)
    assert demo.disturbances((before, after)) == ["Other processes keep 1.2 cores busy (CPU003)"]
    assert demo.disturbances((report(), report())) == []


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
