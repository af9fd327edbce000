"""Cells, sweeps and comparisons of a benchmark in words."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bench_samples import A100, OPTIONS, cell, machine, measured, setting
from rn50_advisor.advisor.bench.conclude import against, conclude
from rn50_advisor.advisor.model.documents.benchmark import Against, Benchmark, Cell, Machine, Sweep
from rn50_advisor.advisor.model.documents.comparison import Estimate
from rn50_advisor.advisor.report.benched import wording

BF16 = setting("bf16", True, 256)


def benchmark(on: Machine = A100, *cells: Cell) -> Benchmark:
    return conclude(on, OPTIONS, cells, made_unix_s=0.0)


@pytest.mark.parametrize(
    ("on", "title"),
    [
        (A100, "resnet50 at 224 px on 8 × NVIDIA A100-SXM4-40GB"),
        (machine("cpu", cores=12.5, devices=2), "resnet50 at 224 px on CPU, 12.5 cores"),
    ],
)
def test_the_title_names_model_picture_and_devices(on: Machine, title: str) -> None:
    assert wording.title(benchmark(on)) == title


def test_circumstances_that_nobody_knows_are_left_out() -> None:
    pairs = dict(
        wording.circumstances(benchmark(replace(A100, instance="aws p4d", instance_source="metadata service")))
    )
    assert pairs["instance"] == "aws p4d (by metadata service)" and pairs["torch"].endswith(", CUDA 12.8")
    plain = dict(wording.circumstances(benchmark(machine("cpu", host=""))))
    assert list(plain) == ["torch", "cores", "each measurement"] and "CUDA" not in plain["torch"]


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (measured(BF16, 2312.4), "2,312 images/s (2,266–2,359), Compute-bound"),
        (measured(BF16, 2000.0, rule="DAT001", title="Slow"), "2,000 images/s (1,960–2,040), DAT001: Slow"),
        (replace(measured(BF16, 2000.0), verdict=None), "2,000 images/s (1,960–2,040)"),
        (cell(BF16, state="oom", why="CUDA"), "does not fit in memory: CUDA"),
        (cell(BF16, state="failed", why="exit code 1"), "failed: exit code 1"),
    ],
)
def test_a_cell_in_a_line(made: Cell, line: str) -> None:
    assert wording.outcome(made) == line


def test_a_row_has_every_column_whatever_became_of_the_cell() -> None:
    for made in (measured(BF16, 1000.0), cell(BF16, state="oom"), cell(BF16, state="failed", why="x")):
        assert len(wording.cell_row(made)) == len(wording.CELL_COLUMNS)
    assert wording.cell_row(measured(BF16, 1000.0))[:4] == [BF16.words, "1,000", "980–1,020", "256 ms"]
    assert wording.cell_row(cell(BF16, state="oom"))[1:] == ["–", "–", "–", "–", "–", "does not fit in memory"]


def test_rates_have_four_digits_and_equal_ends_are_said_once() -> None:
    assert [wording.rate(x) for x in (None, 12.3456, 123456.0)] == ["–", "12.3", "123,500"]
    assert wording.interval(Estimate(5.0, 5.0, 5.0)) == "5"


def test_a_reference_is_shown_once_with_its_precisions() -> None:
    cells = [measured(setting(precision, True, 256), 1200.0) for precision in ("bf16", "fp16")]
    made = benchmark(A100, *cells)
    assert wording.reference(made.cells[0]) == "1,450–2,470" and wording.reference(cells[0]) == "–"
    rows = wording.references(made)
    assert len(rows) == len(set(rows)) == 3
    assert rows[0][:3] == ("bf16 and fp16, 1 device", "typical", "1,450–2,470")


def test_a_sweep_marks_its_knee_and_what_did_not_fit() -> None:
    sweep = Sweep("bf16", False, 2, "real", (8, 16), (50.0, 100.0), 16, 32)
    assert wording.sweep_title(sweep) == "bf16, channels-first, 2 devices, real data"
    assert wording.sweep_rows(sweep) == [
        ["8", "50", "50 %", ""],
        ["16", "100", "100 %", "point of diminishing returns"],
        ["32", "–", "–", "does not fit"],
    ]
    assert len(wording.sweep_rows(replace(sweep, oom_at=None))) == 2


def test_scaling_is_a_share_with_its_interval() -> None:
    cells = [measured(setting("bf16", True, 32, devices), rate) for devices, rate in ((1, 100.0), (4, 320.0))]
    (line,) = benchmark(A100, *cells).scaling
    assert wording.scaling_title(line) == "bf16, channels-last, batch 32"
    assert wording.scaling_rows(line) == [["1", "100 %", "100 % to 100 %"], ["4", "80 %", "77 % to 83 %"]]


def test_an_earlier_result_stands_beside_with_its_rate() -> None:
    made = against(benchmark(A100, measured(BF16, 600.0)), benchmark(A100, measured(BF16, 1000.0)), "last.json")
    assert made.against is not None
    (change,) = made.against.cells
    row = wording.against_row(made, change)
    assert row[:4] == [BF16.words, "1,000", "600", "0.60×"] and row[5] == "slower"
    assert wording.against_summary(made.against) == "against last.json: 1 slower"
    assert wording.against_summary(Against("x", ())) == "against x: no setting in common"
