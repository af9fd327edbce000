"""The check of deep windows on real GPUs, tried on made-up reports: it must reject wrong ones."""

from __future__ import annotations

import json
import runpy
from pathlib import Path

import pytest

from deep_events import deep_window, event
from gpu_rank_facts import FACTS
from recordings import plan, recording
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.diagnose import diagnose

CHECK = runpy.run_path(str(Path(__file__).resolve().parents[1] / "gpu" / "deep_check.py"))


@pytest.fixture
def report(tmp_path: Path) -> Path:
    made = diagnose(recording({0: plan(samples=32)}, facts={100: FACTS}, events=(event(deep_window()),)), Config())
    path = tmp_path / "report.json"
    path.write_text(json.dumps(made.as_json()))
    return path


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("device=cuda", ""),
        ("device=cpu", "device is cuda, not cpu"),
        ("tensor_core_share>0.8", ""),
        ("tensor_core_share<0.1", "tensor_core_share is 1, not < 0.1"),
        ("idle.launch/step_s>0.1", ""),
        ("idle.sync/step_s>0.1", "idle.sync/step_s is 0, not > 0.1"),
        ("classes.lost>0", "classes.lost was not seen"),
        ("flops~", "FLOP a sample counted, 2.453e+10 in the table"),
    ],
)
def test_conditions(report: Path, capsys: pytest.CaptureFixture[str], condition: str, expected: str) -> None:
    assert CHECK["main"](report, [condition]) == bool(expected)
    output = capsys.readouterr().out
    assert expected in output and ("ms by class" in output) is not bool(expected)


def test_a_report_without_a_window_fails_with_the_reason(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    gaps = [{"metric": "kernel.window", "scope": "rank:0", "reason": "the job replays CUDA graphs", "hint": ""}]
    (tmp_path / "r.json").write_text(json.dumps({"facts": {}, "gaps": gaps}))
    assert CHECK["main"](tmp_path / "r.json", []) == 1
    assert "no window; the job replays CUDA graphs" in capsys.readouterr().out
