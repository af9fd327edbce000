"""What follows from measured cells: sweeps, scaling, references, and an earlier result beside them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from bench_samples import A100, OPTIONS, machine, measured, setting
from rn50_advisor.advisor.bench.conclude import against, conclude, judge, scaling, slower_than
from rn50_advisor.advisor.model.documents.benchmark import Benchmark
from rn50_advisor.advisor.model.documents.comparison import Estimate


def test_efficiency_is_a_devices_rate_over_that_of_one_alone() -> None:
    cells = [measured(setting("bf16", True, 32, devices), rate) for devices, rate in ((1, 100.0), (4, 320.0))]
    [line] = scaling(cells)
    assert line.devices == (1, 4)
    assert [e.value for e in line.efficiency] == pytest.approx([1.0, 0.8])
    assert line.efficiency[0] == Estimate(1.0, 1.0, 1.0) and line.efficiency[1].lo < 0.8 < line.efficiency[1].hi
    assert scaling(cells[1:]) == (), "without one device alone there is nothing to compare with"
    missing = [measured(setting("bf16", True, 32, devices), 100.0 * devices) for devices in (2, 4)]
    said = [conclude(A100, OPTIONS, some, made_unix_s=0.0).sentences for some in (missing, cells)]
    assert [any("no scaling efficiency" in sentence for sentence in one) for one in said] == [True, False]


def test_what_others_measured_stands_beside_a_cell_of_a_known_gpu_only() -> None:
    cells = [measured(setting("bf16", True, 256), 1200.0), measured(setting("bf16", True, 256, 8), 9000.0)]
    made = conclude(A100, OPTIONS, cells, made_unix_s=0.0)
    assert [(r.tier, r.lo, r.hi) for r in made.cells[0].reference] == [
        ("typical", 1450.0, 2470.0),
        ("tuned", 3410.0, 3410.0),
        ("course", 500.0, 550.0),
    ]
    assert any("17 % below what is typical" in said for said in made.sentences)
    for other in (replace(OPTIONS, image_size=32), replace(OPTIONS, model="vgg19")):
        assert not conclude(A100, other, cells, made_unix_s=0.0).cells[0].reference
    mixed = replace(A100, names=("NVIDIA A100-SXM4-40GB", "NVIDIA A10G"))
    assert not conclude(mixed, OPTIONS, cells, made_unix_s=0.0).cells[0].reference
    assert not conclude(machine("cpu"), OPTIONS, cells, made_unix_s=0.0).cells[0].reference


def benchmark(*rates: float, **other: Any) -> Benchmark:
    cells = [measured(setting("fp32", True, 8 << n), rate) for n, rate in enumerate(rates)]
    return replace(conclude(machine("cpu"), OPTIONS, cells, made_unix_s=0.0), **other)


def test_an_earlier_result_is_compared_setting_by_setting() -> None:
    made = against(benchmark(100.0, 60.0, 103.0), benchmark(100.0, 100.0, 100.0), "last.json")
    assert made.against is not None
    assert [change.change for change in made.against.cells] == ["same", "regressed", "same"]
    assert [change.now for change in slower_than(made, 0.05)] == [1]
    assert slower_than(made, 0.5) == ()
    moved = [measured(setting("bf16", True, 8), 100.0)]
    other = against(benchmark(100.0), conclude(machine("cpu"), OPTIONS, moved, made_unix_s=0.0), "last.json")
    assert other.against is not None and not other.against.cells


def test_another_model_is_not_compared_and_another_machine_is_named() -> None:
    then = benchmark(100.0, options=replace(OPTIONS, model="vgg19"))
    made = against(benchmark(50.0), then, "last.json")
    assert made.against is not None and not made.against.cells
    there = benchmark(100.0, machine=machine("cpu", host="cloud"))
    made = against(benchmark(50.0), there, "cloud.json")
    assert made.against is not None and made.against.cells[0].change == "regressed"
    assert "host: cloud then, node now" in made.against.notes


@pytest.mark.parametrize(
    ("speed", "change"),
    [
        (Estimate(1.2, 1.01, 1.4), "improved"),
        (Estimate(1.2, 0.99, 1.4), "same"),
        (Estimate(0.8, 0.7, 0.99), "regressed"),
        (Estimate(0.995, 0.99, 0.999), "same"),
    ],
)
def test_a_change_is_called_one_only_where_its_interval_says_so(speed: Estimate, change: str) -> None:
    assert judge(speed) == change


def test_other_data_workers_and_classes_are_named_where_they_matter() -> None:
    def on(data: str, workers: int, classes: int) -> Benchmark:
        given = replace(OPTIONS, data=data, workers=workers, classes=classes)
        cells = [measured(setting("fp32", True, 8, 1, "real" if data else "synthetic"), 100.0)]
        return conclude(machine("cpu"), given, cells, made_unix_s=0.0)

    notes = {}
    for name, there in (("data", on("/old", 2, 10)), ("synthetic", on("", 2, 10)), ("same", on("/new", 4, 100))):
        here = on("/new" if there.options.data else "", 4, 100)
        made = against(here, there, "last.json").against
        assert made is not None and len(made.cells) == 1
        notes[name] = set(made.notes[1:])
    assert notes["same"] == set()
    assert notes["synthetic"] == {"classes: 10 then, 100 now"}, "no cell has been loaded by workers"
    assert notes["data"] == {"classes: 10 then, 100 now", "data: /old then, /new now", "loader workers: 2 then, 4 now"}
