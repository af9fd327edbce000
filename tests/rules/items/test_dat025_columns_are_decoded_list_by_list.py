"""DAT025, columns are decoded list by list: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from input_rule_cases import CROWDED_LINES
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.input.sample_cost import SampleCost
from rule_cases import LINE, job, loader, on_both_ranks, rank
from rule_runs import found
from rule_table import Table, waits
from table_checks import Check, checks

NESTED = {"name": "sound", "lists": 100.0, "numbers": 10_000.0}
FLAT = {"name": "sound", "lists": 0.0, "numbers": 10_000.0}
LIBRARY = {"class": "datasets.arrow_dataset.Dataset", "length": 9}


def dat025(
    wait: float = 0.4,
    *,
    wall: float | None = None,
    form: str = "torch",
    columns: tuple[dict[str, Any], ...] = (NESTED,),
    wrapped: str = "",
    workers: int = 1,
    size: int = 1000,
    crowd: float = 0.0,
    others: int = 0,
    collate: float | None = None,
    job_cores: float = 4.0,
    **more: Any,
) -> Analysis:
    """Both ranks wait so long for batches whose items compute 0.9 ms each unless told; 800 us of them are for 100 lists."""
    data: dict[str, Any] = {**LIBRARY, "format": form, "columns": list(columns), "other_columns": others}
    if wrapped:
        data = {"class": "Wrapper", "length": 9, wrapped: [data] if wrapped == "parts" else data}
    loaders = tuple(replace(loader(n, workers, size=size), dataset=data) for n in (0, 1))
    sample = SampleCost(looks=9, cpu_s=1e-3, wall_s=1e-3, parts=(), collate_s=collate)
    values: dict[str, Any] = {
        "loader.workers": on_both_ranks(workers),
        "loader.busy_share": on_both_ranks(1.0),
        "fetch.wall_s": on_both_ranks(size / 1000 if wall is None else wall),
        "fetch.cpu_share": on_both_ranks(0.9),
        "step.samples": size,
        "step.batches": on_both_ranks(1.0),
        "step.run_delay_s": on_both_ranks(crowd),
        "cpu.job_cores": job_cores,
        "cpu.other_cores": 0.0,
    }
    return job({n: rank(input_wait=wait) for n in (0, 1)}, values=values, loaders=loaders, sample=sample, **more)


TABLE = Table(
    "DAT025",
    dat025,
    lines={
        # beside another column: the mean of 0.6 and 1.4 times 33.75 lists of 8 us is 0.3 of the 0.9 ms
        "share": (
            {"columns": ({**NESTED, "lists": 33.8},), "others": 1},
            {"columns": ({**NESTED, "lists": 33.7},), "others": 1},
        ),
        # 16.875 lists of 8 us are 0.15 of the 0.9 ms
        "counted": ({"columns": ({**NESTED, "lists": 16.9},)}, {"columns": ({**NESTED, "lists": 16.8},)}),
        "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
        **CROWDED_LINES,
    },
    false_alarms={
        "flat rows": {"columns": (FLAT,)},
        "no columns of numbers": {"columns": ()},
        "items of another format": {"form": "arrow"},
        "short rows as Python objects": {"form": "python", "columns": ({**FLAT, "numbers": 512.0},)},
        "items that take so long that it does not matter": {"wall": 9.0},
        "batches that are there in time": {"wait": 0.01},
        "items that the job's own collate function takes": {"collate": 0.8},
    },
    severities=waits("wait"),
    where=LINE,
    also_fires={
        "arrays of NumPy": {"form": "numpy"},
        "long rows as Python objects": {"form": "python", "columns": (FLAT,)},
        "rows for a transform": {"form": "custom", "columns": (FLAT,)},
        "in a wrapper": {"wrapped": "inner"},
        "in a concatenation": {"wrapped": "parts"},
        "in the training process": {"workers": 0},
    },
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_it_says_what_of_an_item_is_decoding_and_why() -> None:
    finding = found("DAT025", dat025(others=1))
    decoding = finding.evidence[1]
    # of 0.9 ms 1.4 and 0.6 times 0.8 ms, at most 0.97 and 0.85 of it
    assert decoding.value == pytest.approx((0.97 * 0.9e-3 + 0.6 * 0.8e-3) / 2)
    assert "100 inner lists in a row of `sound`" in decoding.note
    assert "nested lists" in finding.title and "flat list" in finding.fixes[0].title
    objects = found("DAT025", dat025(form="python", columns=(FLAT,)))
    assert "Python object" in objects.evidence[1].note and "Python objects" in objects.title
    assert objects.fixes[0].change == 'data.with_format("torch")'
    assert "numpy.ravel" in found("DAT025", dat025(form="python")).fixes[0].change
    transformed = found("DAT025", dat025(form="custom", columns=(FLAT,))).fixes[0].change
    assert "its transform in the collate function" in transformed, "another format alone would drop the job's transform"


def test_where_an_item_has_nothing_else_all_of_its_time_is_decoding_but_what_a_flat_row_takes() -> None:
    decoding = found("DAT025", dat025(columns=({**NESTED, "lists": 30.0},))).evidence[1]
    assert decoding.value == pytest.approx((0.97 * 0.9e-3 + 0.9e-3 - 150e-6) / 2)
    collated = found("DAT025", dat025(columns=({**NESTED, "lists": 30.0},), collate=0.4)).evidence[1]
    assert collated.value == pytest.approx((0.5e-3 - 25e-6 + 0.5e-3 - 150e-6) / 2)


def test_the_column_that_takes_most_is_named() -> None:
    other = {"name": "mask", "lists": 50.0, "numbers": 50_000.0}
    assert "`sound`" in found("DAT025", dat025(columns=(other, NESTED))).fixes[0].title


def test_more_of_it_gains_more_but_never_the_whole_item() -> None:
    counts = (40.0, 60.0, 1_000.0, 2_000.0)
    jobs = (dat025(columns=({**NESTED, "lists": n},), workers=0, others=1) for n in counts)
    best = [saving.speedup[1] for a in jobs if (saving := found("DAT025", a).saving) is not None]
    assert best[0] < best[1] < best[2] == best[3]
