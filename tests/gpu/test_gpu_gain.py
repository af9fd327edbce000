"""The check of findings against what their fix brings: it rejects a missed fault, and a verdict about one that costs nothing."""

from __future__ import annotations

import json
import runpy
from pathlib import Path
from typing import Any

import pytest

CHECK = runpy.run_path(str(Path(__file__).resolve().parents[1] / "gpu" / "gain_check.py"))


def report(found: bool, root: bool, speedup: list[float] | None = None) -> dict[str, Any]:
    findings = [{"rule": "CMP004", "saving": {"speedup": speedup} if speedup else None}] if found else []
    return {"verdict": {"rule": "CMP004" if root else None}, "findings": findings}


@pytest.mark.parametrize(
    ("gain", "document", "told"),
    [
        (1.06, report(False, False), (1, "1.060 times as fast, CMP004 not found")),
        (1.04, report(False, False), (0, "too little to judge")),
        (1.06, report(True, True, [1.01, 1.10]), (0, "predicted 1.01 to 1.10")),
        (1.06, report(True, False, [1.10, 1.20]), (0, "predicted 1.10 to 1.20 (outside)")),
        (1.01, report(True, True, [1.01, 1.10]), (1, "1.010 times as fast")),
        (1.01, report(True, False), (0, "nothing predicted")),
        (1.03, report(True, True, [1.01, 1.10]), (0, "predicted")),
    ],
)
def test_a_finding_is_held_against_the_job_without_the_fault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gain: float, document: dict[str, Any], told: tuple[int, str]
) -> None:
    code, said = told
    (tmp_path / "report.json").write_text(json.dumps(document))
    (tmp_path / "with").write_text(str(0.02 * gain))
    (tmp_path / "without").write_text("0.02")
    assert CHECK["main"](tmp_path / "report.json", "CMP004", tmp_path / "with", tmp_path / "without") == code
    assert said in capsys.readouterr().out
