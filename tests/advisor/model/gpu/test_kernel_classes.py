"""A deep window as it travels in facts, and its tables."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from deep_events import deep_window
from rn50_advisor.advisor.model.gpu.kernel_classes import (
    DeepWindow,
    KernelRow,
    deep_facts,
    deep_tables,
    window_from,
    windows_in,
)

ROW = KernelRow("conv_kernel", "conv", 0.004, 2.0, tensor_cores=True, operator="aten::conv2d", shapes="[8, 3]")
PLAIN = DeepWindow(1, "cuda", 2, 0.010, 12, "H200", {"norm": 0.002, "conv": 0.006, "nccl": 0.0}, rows=(ROW,))


def test_a_window_comes_back_from_the_facts_as_it_was() -> None:
    made = deep_window()
    assert windows_in(deep_facts((made, PLAIN))) == (made, PLAIN) and deep_facts(()) == {}


@pytest.mark.parametrize(
    "change", [{"device": "tpu"}, {"steps": 0}, {"step_s": 0.0}, {"classes": {"conv": "x"}}, {"x": 1}]
)
def test_what_is_no_window_is_refused_and_passed_over(change: dict[str, Any]) -> None:
    stored = {**asdict(PLAIN), **change}
    with pytest.raises((ValueError, TypeError)):
        window_from(stored)
    assert windows_in({"deep": [stored, asdict(PLAIN)]}) == (PLAIN,)


@pytest.mark.parametrize("fact", [None, 7, {}, "deep"])
def test_facts_of_another_shape_hold_no_window(fact: Any) -> None:
    assert windows_in({"deep": fact}) == () and deep_tables({"deep": fact}) == []


def test_the_table_has_classes_by_time_and_a_row_for_each_kernel() -> None:
    (table,) = deep_tables(deep_facts((PLAIN,)))
    assert table.title == "rank 1 on H200, steps 12–13"
    assert table.classes == (("convolutions", "6.00 ms", "75 %"), ("normalisation", "2.00 ms", "25 %"))
    assert table.rows == (("conv_kernel", "convolutions, tensor cores", "4.00 ms", "2", "aten::conv2d [8, 3]"),)
    assert table.notes == ("10.0 ms per step while it was profiled",) and table.hidden == 0


def test_copies_stand_beside_the_kernels_and_of_many_rows_some_are_shown() -> None:
    many = replace(PLAIN, steps=1, hardware="", copy_s=0.001, rows=(ROW,) * 11)
    (table,) = deep_tables(deep_facts((many,)))
    assert table.title == "rank 1 on a GPU, step 12"
    assert table.classes[-1] == ("copies, beside the kernels", "1.00 ms", "")
    assert (len(table.rows), table.hidden) == (8, 3)


def test_notes_contain_measured_values_without_negligible_ones() -> None:
    idle = {"launch": 0.002, "input": 0.00004}
    full = replace(
        PLAIN, busy_s=0.008, idle=idle, tensor_core_share=0.5, nccl_s=0.002, nccl_overlap_share=0.25, cost_s=0.4
    )
    (table,) = deep_tables(deep_facts((full,)))
    assert "kernels ran 80 % of the time" in table.notes
    assert "tensor cores: 50 % of convolutions and matrix products" in table.notes
    assert "collectives 2.00 ms per step, 25 % of it hidden" in table.notes
    assert "looking took the rank 400 ms, once" in table.notes
    (idle_note,) = [note for note in table.notes if note.startswith("idle in a step")]
    assert idle_note.startswith("idle in a step: 2.00 ms waiting for launches") and "input" not in idle_note


def test_a_trace_without_steps_is_told_as_a_whole() -> None:
    (table,) = deep_tables(deep_facts((replace(deep_window(), whole=True),)))
    assert table.title.endswith("the whole trace")
    assert not any("a step" in note for note in table.notes)
