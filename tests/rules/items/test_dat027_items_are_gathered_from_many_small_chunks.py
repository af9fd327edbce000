"""DAT027, items are gathered from many small chunks: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from input_rule_cases import CROWDED_LINES, in_a_call
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import NotMeasured, Where
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall, SampleLine
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.probes.documents.event_documents import ChunkedArray
from rule_cases import SCRIPT, without
from rule_runs import RULES, found
from rule_table import Table, waits
from table_checks import Check, checks

LINE = SampleLine("Patches.__getitem__", SCRIPT, 34, 9, 12)


def dat027(
    wait: float = 0.4,
    share: float = 0.75,
    error: float = 0.05,
    *,
    library: str = "zarr",
    side: int = 64,
    known: bool = True,
    samples: float = 8.0,
    item_mb: float = 0.196608,
    cpu: float = 0.9,
    **more: Any,
) -> Analysis:
    """An item of 12 images of 64×64 float32, out of an array of int16 whose chunks have `side` in place of 64."""
    array = ChunkedArray(name="sat", rows=1000, chunk=[1, 1, side, side], packed=True, itemsize=2)
    given = {"array": FrequentCall(library, LINE), "chunked_arrays": (array,) if known else (), **more}
    a = in_a_call("array", wait, share, error, cpu, **given)
    values = {("batch.samples", rank): samples for rank in (0, 1)} | {("batch.megabytes", JOB): samples * item_mb}
    return replace(a, values=a.values | values)


TABLE = Table(
    "DAT027",
    dat027,
    lines={
        "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
        "share": ({"share": 0.3}, {"share": 0.2999}),
        "chunks": ({"item_mb": 4 * 4 * 64 * 64 / 1e6}, {"item_mb": 3.99 * 4 * 64 * 64 / 1e6}),
        "left": ({"samples": 160.0}, {"samples": 170.0}),
        **CROWDED_LINES,
    },
    false_alarms={
        "no wait for batches": {"wait": 0.0},
        "reading that takes little of an item": {"share": 0.05},
        "no array in chunks, and hardly any reading": {"known": False, "share": 0.1},
        "chunks as large as an item": {"side": 224},
        "reads that take no longer than those of a few large chunks": {"samples": 300.0},
        "no samples in its library": {"array": None, "share": 0.0},
    },
    severities=waits("wait"),
    where=Where(SCRIPT, 34),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_chunks_and_the_line_are_named() -> None:
    finding = found("DAT027", dat027())
    assert finding.title == "Data loading: 12 chunks or more read for every item"
    assert "in sat with chunks of 1×1×64×64: 9 of 12 stacks at Patches.__getitem__" in finding.evidence[0].note


def test_less_is_left_where_the_library_needs_less_for_a_read() -> None:
    small = {"item_mb": 5 * 4 * 64 * 64 / 1e6, "samples": 100.0}
    hdf5, zarr = (found("DAT027", dat027(library=library, **small)).saving for library in ("h5py", "zarr"))
    assert hdf5 is not None and zarr is not None and hdf5.speedup[0] > zarr.speedup[0]


@pytest.mark.parametrize(
    ("gone", "known", "names"), [("loader.array_share", True, "loader.array_share"), ("", False, "loader.chunk_items")]
)
def test_what_was_not_seen_is_not_called_sound(gone: str, known: bool, names: str) -> None:
    a = dat027(known=known)
    assert run_rule(RULES["DAT027"], without(a, gone) if gone else a, Config()) == NotMeasured("DAT027", (names,))


def test_reads_that_take_longer_than_the_fewest_chunks_leave_more_of_them_of_an_items_size() -> None:
    """A read of 20 ms, which five chunks would not take: eight of an item's size are left at best, too, of 0.34 ms each."""
    saving = found("DAT027", dat027(samples=50.0, wait=0.9, share=1.0, error=0.0, item_mb=5 * 4 * 64 * 64 / 1e6)).saving
    assert saving is not None
    assert saving.speedup[1] < 2 * saving.speedup[0]
