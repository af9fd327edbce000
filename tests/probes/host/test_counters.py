"""Gaps are reported once, and counters continue when their source is replaced."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.probes.host.counters import Continued, GapsOnce


def test_a_gap_is_handed_out_once_however_often_it_is_met() -> None:
    gaps = GapsOnce()
    for _ in range(3):
        gaps.add("cpu.temp_c", "host", "no sensor", "load coretemp")
    assert gaps.take() == (ProbeGap("cpu.temp_c", "host", "no sensor", "load coretemp"),)
    gaps.add("cpu.temp_c", "host", "another reason")
    assert gaps.take() == ()


def test_each_metric_and_each_scope_has_a_gap_of_its_own() -> None:
    gaps = GapsOnce()
    gaps.add(("a", "b"), "host", "x")
    gaps.add("a", "pid:7", "x")
    assert [(gap.metric, gap.scope) for gap in gaps.take()] == [("a", "host"), ("b", "host"), ("a", "pid:7")]


def test_what_many_scopes_miss_for_one_reason_is_one_gap_of_the_first() -> None:
    gaps = GapsOnce()
    for pid in range(64):
        gaps.add("io.read_bytes", f"pid:{pid}", "not permitted", key="workers")
    gaps.add("io.read_bytes", "pid:99", "not permitted")
    assert [gap.scope for gap in gaps.take()] == ["pid:0", "pid:99"]


@pytest.mark.parametrize(
    ("readings", "values"),
    [
        ([("a", 5.0), ("a", 8.0)], [5.0, 8.0]),
        ([("a", 5.0), ("b", 900.0), ("b", 902.0)], [5.0, 5.0, 7.0]),  # the new one's earlier count is ignored
        ([("a", 5.0), ("a", 2.0), ("a", 3.0)], [5.0, 7.0, 8.0]),  # it began again at 0
        ([("a", 5.0), ("b", 1.0), ("a", 100.0)], [5.0, 5.0, 5.0]),
        ([("a", 0.0), ("a", 0.0)], [0.0, 0.0]),
    ],
)
def test_a_counter_never_jumps_or_falls(readings: list[tuple[str, float]], values: list[float]) -> None:
    counters = Continued()
    assert [counters.value(7, "cpu_s", source, raw) for source, raw in readings] == values


def test_owners_and_counters_are_kept_apart_and_forgotten() -> None:
    counters = Continued()
    counters.value(7, "cpu_s", "a", 5.0)
    assert counters.value(8, "cpu_s", "b", 1.0) == 1.0
    assert counters.value(7, "io", "b", 2.0) == 2.0
    counters.prune({8})
    assert counters.value(7, "cpu_s", "b", 900.0) == 900.0
    assert counters.value(8, "cpu_s", "c", 50.0) == 1.0
