"""The cost of a sample, and its table from the facts of a report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from rn50_advisor.advisor.model.input.sample_cost import (
    SampleCost,
    SampleLine,
    SamplePart,
    sample_facts,
    sample_table,
    without_samples,
)

PARTS = (
    SamplePart("load", "default_loader", "", 0, 0.006, 0.006, 0.6, 0.02),
    SamplePart("transform", "Blur", "/job/data.py", 7, 0.004, 0.004, 0.4, 0.02),
)
COST = SampleCost(1240, 0.01, 0.012, PARTS)


def test_the_costliest_transform_is_the_first_and_loading_is_none() -> None:
    assert COST.costliest_transform == PARTS[1]
    assert replace(COST, parts=PARTS[:1]).costliest_transform is None


@pytest.mark.parametrize(
    ("width", "height", "picture"), [(500.0, 375.0, "500×375"), (None, 375.0, ""), (0.0, 0.0, ""), (None, None, "")]
)
def test_a_picture_has_a_width_and_a_height(width: float | None, height: float | None, picture: str) -> None:
    assert replace(COST, width=width, height=height).picture == picture


def test_a_line_is_named_by_its_file_without_the_folder() -> None:
    line = SampleLine("blur", "/job/data.py", 21, 30, 40)
    assert (line.words, line.share) == ("blur (data.py:21)", 0.75)
    assert SampleLine("blur", "data.py", 21, 0, 0).share == 0.0


def test_the_table_has_a_row_for_each_part_and_a_note() -> None:
    table = sample_table(sample_facts(COST))
    assert table is not None and table.hidden == 0
    assert table.rows == (
        ("default_loader (open and decode)", "6.00 ms", "60 %", ""),
        ("Blur", "4.00 ms", "40 %", "/job/data.py:7"),
    )
    assert table.notes == "10.0 ms of CPU time per sample (1,240 profiled)"


def test_the_note_shows_what_else_is_known() -> None:
    line = SampleLine("blur", "/job/data.py", 21, 30, 40)
    full = replace(COST, collate_s=0.002, width=500.0, height=375.0, file_bytes=110_000.0, lines=(line,))
    table = sample_table(sample_facts(full))
    assert table is not None and table.notes.endswith(
        "collating 2.00 ms per batch, pictures of 500×375 on average, files of 110 KB, "
        "most often in blur (data.py:21): 30 of 40 stack samples"
    )


def test_of_many_parts_the_first_are_shown() -> None:
    table = sample_table(sample_facts(replace(COST, parts=PARTS * 10)))
    assert table is not None and (len(table.rows), table.hidden) == (12, 8)


@pytest.mark.parametrize("fact", [None, 7, [], {}, {"parts": 3, "lines": []}, {"parts": [{"x": 1}], "lines": []}])
def test_facts_of_another_shape_are_passed_over(fact: Any) -> None:
    assert sample_table({"sample": fact}) is None


def test_other_facts_are_left_as_they_are() -> None:
    assert sample_facts(None) == {} and without_samples({"0": 1, **sample_facts(COST)}) == {"0": 1}
