"""What is wrong, why, and what to type stand on the first view of recorded faults, at 120x36 and at 80x24."""

from __future__ import annotations

from pathlib import Path

import pytest

from first_views import FIRST_VIEW_SIZES, first_view, missing_of

RUNS = Path(__file__).resolve().parents[3] / "samples" / "runs"


@pytest.mark.parametrize("size", FIRST_VIEW_SIZES)
@pytest.mark.parametrize(
    ("run", "rule", "words"),
    [
        ("throttled", "GPU001", ("GPU 3 (rank 3) throttled for 60 %", "cool GPU 3", "about 1.")),
        ("item-each-step", "CMP004", (".item() at train.py:88", "train.py:88  no .item() in each step", "about 1.")),
        ("degraded-link", "GPU006", ("GPU 1 (rank 1): 4 lanes", "reseat GPU 1", "about 1.")),
        ("shared", "GPU005", ("GPU 2 (rank 2): 1 foreign process", "move the other processes off GPU 2", "about 1.")),
        ("lost", "GPU007", ("GPU 2 (rank 2): Xid 79", "reboot or replace the node", "no prediction: the job")),
    ],
)
async def test_what_why_and_what_to_type_stand_on_the_first_view(run, rule, words, size) -> None:
    lines, report = await first_view(RUNS / f"{run}.tar.gz", size)
    assert report.verdict.rule == rule
    assert missing_of(lines, report) == []
    for line, label, expected in zip(lines[1:4], ("WHY", "FIX", "GAIN"), words, strict=True):
        assert line.startswith(f" {label:<5}{expected}")


@pytest.mark.parametrize("size", FIRST_VIEW_SIZES)
@pytest.mark.parametrize("run", ["8xH100", "MIG"])
async def test_without_a_bottleneck_the_lines_promise_nothing(run: str, size: tuple[int, int]) -> None:
    lines, report = await first_view(RUNS / f"{run}.tar.gz", size)
    assert report.verdict.rule is None
    assert lines[1].startswith(" WHY  ") and lines[2].startswith(" FIX  none") and lines[3].startswith(" GAIN no")
