"""DAT026, single items are read out of chunks of many: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from input_rule_cases import CROWDED_LINES, in_a_call
from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Clear, NotMeasured, Where
from rn50_advisor.advisor.model.input.sample_cost import FrequentCall, SampleLine
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import run_rule
from rn50_advisor.probes.documents.event_documents import ChunkedArray
from rule_cases import SCRIPT, without
from rule_runs import RULES, found
from rule_table import Table, waits
from table_checks import Check, checks

CALL = FrequentCall("h5py", SampleLine("Slices.__getitem__", SCRIPT, 12, 9, 12))


def dat026(
    wait: float = 0.4,
    share: float = 0.75,
    error: float = 0.05,
    *,
    items: int = 32,
    samples: float = 8.0,
    cpu: float = 0.9,
    **more: Any,
) -> Analysis:
    arrays = (ChunkedArray(name="images", rows=4096, chunk=[items, 64, 64], packed=True),) if items else ()
    a = in_a_call("chunked", wait, share, error, cpu, **{"chunked": CALL, "chunked_arrays": arrays, **more})
    known = {("loader.chunk_items", JOB): float(items)} if items else {}
    return replace(a, values=a.values | {("batch.samples", rank): samples for rank in (0, 1)} | known)


TABLE = Table(
    "DAT026",
    dat026,
    lines={
        "input_wait": ({"wait": 0.05}, {"wait": 0.0499}),
        "share": ({"share": 0.3}, {"share": 0.2999}),
        "left": ({"items": 3}, {"items": 2}),
        **CROWDED_LINES,
    },
    false_alarms={
        "no wait for batches": {"wait": 0.0},
        "reading that takes little of an item": {"share": 0.05},
        "no array in chunks, and hardly any reading": {"items": 0, "share": 0.1},
        "reads of 75 µs": {"samples": 10_000.0},
        "no samples in its library": {"chunked": None, "share": 0.0},
    },
    severities=waits("wait"),
    where=Where(SCRIPT, 12),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_the_chunk_and_the_line_are_named() -> None:
    finding = found("DAT026", dat026())
    assert finding.title == "Data loading: a chunk of 32 items unpacked for every item"
    assert "in images with chunks of 32×64×64: 9 of 12 stacks at Slices.__getitem__" in finding.evidence[0].note
    assert "-l images:CHUNK=1x" in finding.fixes[0].change


def test_a_loader_that_goes_in_order_uses_the_whole_chunk() -> None:
    a = dat026()
    loaders = tuple(replace(loader, shuffle=False) for loader in a.loaders)
    assert isinstance(run_rule(RULES["DAT026"], replace(a, loaders=loaders), Config()), Clear)


def test_an_array_that_was_not_seen_is_not_called_sound() -> None:
    outcome = run_rule(RULES["DAT026"], dat026(items=0), Config())
    assert outcome == NotMeasured("DAT026", ("loader.chunk_items",))


def test_more_is_left_of_smaller_chunks() -> None:
    small, large = (found("DAT026", dat026(items=items)).saving for items in (5, 100))
    assert small is not None and large is not None and small.speedup[0] < large.speedup[0]


def test_without_stacks_it_is_not_measured() -> None:
    outcome = run_rule(RULES["DAT026"], without(dat026(), "loader.chunked_share"), Config())
    assert outcome == NotMeasured("DAT026", ("loader.chunked_share",))
