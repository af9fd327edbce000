"""Recordings of real GPUs, kept in tests/gpu/recordings/<machine>, must get the verdicts they should have.

How that works is tested on a made-up one.
"""

from __future__ import annotations

import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
CHECK = runpy.run_path(str(HERE / "report_check.py"))
MADE_UP = HERE.parents[1] / "samples" / "runs" / "item-each-step.tar.gz"
# As run_on_gpu.sh has it; and of all recordings of one machine.
FILE_KIB_MAX, FOLDER_KIB_MAX = 512, 8192


def test_recordings_of_real_gpus_get_the_verdicts_they_should_have() -> None:
    folders = [path.parent for path in sorted(HERE.glob("recordings/*/expected.tsv"))]
    found = {folder / name: text for folder in folders for name, text, right in CHECK["replayed"](folder) if not right}
    assert not found
    for folder in folders:
        sizes = [file.stat().st_size / 1024 for file in folder.iterdir()]
        assert max(sizes) <= FILE_KIB_MAX and sum(sizes) <= FOLDER_KIB_MAX, f"{folder} is too large to keep"


def test_the_script_keeps_no_recording_that_this_folder_would_not() -> None:
    limit = re.search(r"^RECORDING_KIB=(\d+)", (HERE / "run_on_gpu.sh").read_text(), re.MULTILINE)
    assert limit and int(limit[1]) == FILE_KIB_MAX


@pytest.fixture
def kept(tmp_path: Path) -> Callable[..., Path]:
    """Makes a folder of recordings with a made-up run whose line has these words and conditions."""

    def make(*line: str) -> Path:
        folder = tmp_path / "H100"
        folder.mkdir()
        shutil.copy(MADE_UP, folder / "item.tar.gz")
        (folder / "expected.tsv").write_text("\t".join(line) + "\n")
        return folder

    return make


@pytest.mark.parametrize(
    ("words", "conditions", "said"),
    [
        ("CMP004", "", ""),
        ("+CMP004 -CMP001", "", ""),
        ("+CMP003|+CMP004 bottleneck", "", ""),
        ("any", "", ""),
        ("clean", "", "FAILED: CMP004"),
        ("-CMP004", "", "expected -CMP004"),
        ("CMP004", "device=cuda syncs>0.9", "; no window"),
    ],
)
def test_a_recording_is_held_to_its_line(
    kept: Callable[..., Path], capsys: pytest.CaptureFixture[str], words: str, conditions: str, said: str
) -> None:
    assert CHECK["main"](["--replay", str(kept("item", words, conditions))]) == bool(said)
    output = capsys.readouterr().out
    assert output.startswith("item ") and said in output and ("ok: CMP004" in output) is not bool(said)


def test_a_recording_without_a_line_is_no_success(kept: Callable[..., Path]) -> None:
    with pytest.raises(ValueError, match="differ: item, other"):
        list(CHECK["replayed"](kept("other", "any", "")))


def report(state: str = "healthy", rule: str | None = None, **severities: str) -> dict[str, Any]:
    findings = [{"rule": name, "severity": severity} for name, severity in severities.items()]
    return {
        "verdict": {"state": state, "rule": rule},
        "findings": findings,
        "outcomes": [{"rule": "CMP001", "state": "clear"}, {"rule": "CMP002", "state": "not_measured"}],
    }


@pytest.mark.parametrize(
    ("document", "missing"),
    [
        (report(), []),
        (report(CMP006="info"), []),
        (report(LOP005="low"), ["clean"]),
        (report("bottleneck", "LOP005", LOP005="low"), ["clean"]),
        (report("inconclusive"), ["clean"]),
    ],
)
def test_clean_is_healthy_without_findings_but_notes(document: dict[str, Any], missing: list[str]) -> None:
    assert CHECK["missing"]("clean -CMP001", document) == missing
    assert CHECK["missing"]("-CMP002 -CMP003", document) == ["-CMP002", "-CMP003"], "neither measured nor evaluated"
