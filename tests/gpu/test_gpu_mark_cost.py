"""The measurement of what marks cost with CUDA events, on a double of `torch.cuda`: it must tell cheap events from expensive ones."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import pytest

TESTS = Path(__file__).resolve().parents[1]
CHECK = runpy.run_path(str(TESTS / "gpu" / "mark_cost.py"))


class Event:
    """An event that passes as soon as it is recorded."""

    record_ns = 0  # that recording takes the host

    def __init__(self, enable_timing: bool) -> None:
        self.at_ns = 0

    def record(self, stream: Any) -> None:
        until = perf_counter_ns() + self.record_ns
        while perf_counter_ns() < until:
            pass
        self.at_ns = perf_counter_ns()

    def query(self) -> bool:
        return True

    def elapsed_time(self, later: Event) -> float:
        return (later.at_ns - self.at_ns) / 1e6


class Cuda:
    def __init__(self, record_us: int) -> None:
        self.Event = type("Event", (Event,), {"record_ns": 1000 * record_us})
        self.waits = 0

    def current_stream(self, device: int) -> None:
        assert device == 0

    def is_current_stream_capturing(self) -> bool:
        return False

    def memory_stats(self, device: int) -> dict[str, int]:
        return {}

    def synchronize(self) -> None:
        self.waits += 1


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few repetitions: the double's cost is set, not measured."""
    for name, value in {"CALLS": 20, "STEPS": 30, "KERNELS": 2}.items():
        monkeypatch.setitem(CHECK["main"].__globals__, name, value)


@pytest.mark.usefixtures("few")
@pytest.mark.parametrize(("limit_us", "code"), [(1e6, 0), (500.0, 1)])
def test_a_step_is_judged_by_the_cost_of_its_marks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], limit_us: float, code: int
) -> None:
    """Five marks of 200 us each are more than 500 us on any machine, and less than a second."""
    monkeypatch.setitem(CHECK["main"].__globals__, "STEP_US_MAX", limit_us)
    launched: list[int] = []
    cuda = Cuda(200)
    assert CHECK["main"](tmp_path / "cost.json", cuda, lambda: launched.append(1)) == code
    assert "0 of 30 steps dropped" in capsys.readouterr().out
    found = json.loads((tmp_path / "cost.json").read_text())
    assert all(found[f"step, {what} queued"]["median_us"] >= 1000 for what in ("nothing", "kernels"))
    assert found["calls"]["record"]["median_us"] >= 200 > found["calls"]["query"]["median_us"]
    assert found["step, kernels queued"]["steps_read"] >= 29, "the first one has no event before it"
    assert launched and cuda.waits


def test_a_machine_without_a_gpu_is_no_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    torch = pytest.importorskip("torch")
    if torch.cuda.is_available():
        pytest.skip("there is one")
    assert CHECK["on_gpu"](tmp_path / "cost.json") == 1
    assert "no GPU" in capsys.readouterr().out and not (tmp_path / "cost.json").exists()
