"""Samples as counters: titles and units for people, rates of counters, a bound."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordings import FIRST_STEP_NS, plan, rank_process, recording, series
from report_samples import empty, gpu
from rn50_advisor.advisor.model.metrics import SAMPLES
from rn50_advisor.advisor.model.recording import Node, Process, Recording
from rn50_advisor.advisor.report.perfetto import counter_tracks
from rn50_advisor.advisor.report.perfetto.counter_tracks import add_counters, points, shown_as
from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook
from traced_runs import events, named


def drawn(
    made: Recording, gpus: tuple[int, ...] = ()
) -> tuple[dict[tuple[str, str], list[tuple[float, float]]], TraceBook]:
    """(times in seconds and values, by process and name with unit; the book)."""
    book = TraceBook(FIRST_STEP_NS)
    add_counters(book, made, replace(empty(), gpus=tuple(map(gpu, gpus))), {0: book.process("rank 0", 100)})
    found: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for event in named(events(book)):
        ((unit, value),) = event["args"].items()
        found.setdefault((event["process"], f"{event['name']} {unit}"), []).append((event["ts"] / 1e6, value))
    return found, book


@pytest.mark.parametrize(
    ("name", "unit", "kind"),
    [
        ("cpu.busy_s", "cores", "rate"),
        ("psi.io_some_s", "% of the time", "rate"),
        ("disk.read_bytes", "MB/s", "rate"),
        ("disk.queue_s", "requests in flight", "rate"),
        ("disk.reads", "reads/s", "rate"),
        ("mem.available_bytes", "GiB", "level"),
        ("gpu.nvlink_rx_bytes_per_s", "MB/s", "level"),
        ("gpu.temp_c", "°C", "level"),
        ("gpu.energy_j", "W", "rate"),
        ("gpu.ecc_corrected", "errors", "count"),
        ("gpu.power_cap_s", "% of the time", "rate"),
    ],
)
def test_units_are_those_that_people_use(name: str, unit: str, kind: str) -> None:
    shown = shown_as(SAMPLES[name])
    assert (shown.unit, shown.kind) == (unit, kind)


def test_a_counter_is_a_rate_from_reading_to_reading() -> None:
    shown = shown_as(SAMPLES["cpu.busy_s"])
    at = lambda t: FIRST_STEP_NS + round(t * 1e9)  # noqa: E731
    found = list(points(series((0, 10), (2, 14), (3, 14.5), (4, 0.5), (6, 1.5)), shown))
    assert found == [(at(0), 2.0), (at(2), 0.5), (at(4), 0.5)]  # none between 3 and 4, where it was reset


def test_errors_are_counted_from_the_beginning() -> None:
    shown = shown_as(SAMPLES["gpu.xids"])
    assert [value for _, value in points(series((0, 5), (1, 5), (2, 7), (3, 0), (4, 1)), shown)] == [0, 0, 2, 2, 3]


def test_counters_stand_with_what_they_are_of() -> None:
    worker = Process(201, "worker", 0, None, 3, 100, "python train.py", FIRST_STEP_NS)
    other = Process(
        300, "other", None, None, None, 1, "torchrun --token=abcdef1234567890abcdef train.py --epochs 90", FIRST_STEP_NS
    )
    made = recording(
        {0: plan(3)},
        processes=(rank_process(0), worker, other),
        samples={
            ("cpu.busy_s", "host"): series((0, 0), (1, 2)),
            ("cpu.busy_s", "cpu:3"): series((0, 0), (1, 1)),
            ("net.rx_bytes", "net:eth0"): series((0, 0), (1, 2e6)),
            ("proc.cpu_s", "pid:100"): series((0, 0), (1, 1)),
            ("proc.cpu_s", "pid:201"): series((0, 0), (1, 0.5)),
            ("proc.cpu_s", "pid:300"): series((0, 0), (1, 0.25)),
            ("gpu.util_pct", "gpu:1"): series((0, 90)),
            ("gpu.mem_used_bytes", "mig:1/3"): series((0, 2 << 30)),
            ("unheard.of", "host"): series((0, 1)),
        },
    )
    found, _ = drawn(made, gpus=(1,))
    assert found == {
        ("host node", "CPU busy (cores)"): [(0, 2)],
        ("host node", "core 3: CPU busy (cores)"): [(0, 1)],
        ("host node", "network eth0: received (MB/s)"): [(0, 2)],
        ("host node", "process 300 (torchrun --token=*** train.py…): CPU (cores)"): [(0, 0.25)],
        ("rank 0", "CPU (cores)"): [(0, 1)],
        ("rank 0", "worker 3, process 201: CPU (cores)"): [(0, 0.5)],
        (f"GPU 1 · {gpu(1).name}", "GPU utilisation (%)"): [(0, 90)],
        (f"GPU 1 · {gpu(1).name}", "MIG 3: GPU memory used (GiB)"): [(0, 2)],
    }


def test_each_host_of_a_job_on_several_has_its_own() -> None:
    parts = [recording({n: plan(3)}, samples={("cpu.load1", "host"): series((0, n + 1))}) for n in (0, 1)]
    nodes = tuple(Node(n, f"host-{n}", (n,), part) for n, part in enumerate(parts))
    found, _ = drawn(replace(parts[0], nodes=nodes))
    assert {place for place, _ in found} == {"host host-0", "host host-1"}


def test_counters_that_never_moved_are_named_and_left_out() -> None:
    samples = {
        ("gpu.ecc_corrected", "gpu:0"): series((0, 7), (1, 7)),
        ("gpu.lost", "gpu:0"): series((0, 0)),
        ("gpu.util_pct", "gpu:0"): series((0, 0)),
    }
    found, book = drawn(recording({0: plan(3)}, samples=samples))
    assert [name for _, name in found] == ["GPU utilisation (%)"]
    assert book.left_out == ["counters that stayed as they were at the beginning: ECC, corrected, GPU lost"]


def test_many_readings_are_thinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counter_tracks, "READINGS_MAX", 25)
    samples = {("gpu.temp_c", "gpu:0"): series(*((t, t) for t in range(100)))}
    found, book = drawn(recording({0: plan(3)}, samples=samples))
    (values,) = found.values()
    assert [t for t, _ in values] == list(range(0, 100, 4))
    assert "every 4th of 100 readings" in book.left_out[0]
