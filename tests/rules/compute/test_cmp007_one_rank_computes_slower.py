"""CMP007, one rank computes slower: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

import rule_cases as jobs
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks

TABLE = Table(
    "CMP007",
    jobs.cmp007,
    lines={
        "ratio": ({"slow": 0.6, "usual": 0.5}, {"slow": 0.715, "usual": 0.6}),
        "excess": ({"slow": 0.1, "usual": 0.05}, {"slow": 0.0999, "usual": 0.05}),
        "part": (
            {"slow": 0.5, "usual": 0.25, "elsewhere": 0.25},
            {"slow": 0.5, "usual": 0.25, "elsewhere": 0.2501},
        ),
        "late": ({"late": 0.5}, {"late": 0.49}),
    },
    false_alarms={
        "all ranks are as slow": {"slow": 0.9, "usual": 0.9},
        "ranks that take turns": {"late": 0.3},
        "ranks that compute little": {"slow": 0.03, "usual": 0.01},
        "a heap that shrinks and grows in each step": {
            "slow": 0.7,
            "usual": 0.5,
            "values": {"step.compute_s": {0: 0.5, 1: 0.7}, "step.system_s": {0: 0.01, 1: 0.16}},
        },
        "kernel time that was read in few steps": {
            "values": {"step.compute_s": {0: 0.5, 1: 0.52}, "step.system_s": {0: 0.3, 1: 0.05}},
        },
        "steps that scatter by as much": {"values": {"comm.excess_error_s": {1: 0.4}}},
        "a rank that is late for something else": {"slow": 0.5, "usual": 0.4, "elsewhere": 0.4},
    },
    severities=(
        ({"usual": 0.6}, "critical"),
        ({"usual": 0.8}, "high"),
    ),
    ranks=(1,),
    best=({"usual": 0.8}, warm(1 / 0.8)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(("blocked", "in_copies"), [(0.051, True), (0.049, False)])
def test_cmp007_distinguishes_slow_copies_from_slow_computing(blocked: float, in_copies: bool) -> None:
    """Half of the 0.4 s by which rank 1 is slower: 0.15 in pageable copies, the rest in blocking ones."""
    compute = {0: 0.6, 1: 1.0}
    values = {"step.compute_s": compute, "copy.pageable_s": {0: 0.05, 1: 0.2}, "copy.blocking_s": {1: blocked}}
    finding = found("CMP007", TABLE.job(values=values))
    rows = {e.metric: e for e in finding.evidence}
    assert (rows["phase"].value == "copies to the GPU") == in_copies
    assert ("copies of rank 1" in finding.fixes[0].title) == in_copies


def test_cmp007_names_the_phase_in_which_the_time_is_lost() -> None:
    rows = {e.metric: e for e in found("CMP007", TABLE.job()).evidence}
    assert rows["phase"].value == "backward"  # of forward, backward, optimizer as 3 : 6 : 1
    assert "240 ms" in rows["phase"].note  # 0.6 of the 400 ms more


def sizes(mean: float, *, looks: int = 20, scatter: float = 0.3) -> dict[str, Any]:
    """Facts of a rank whose batches have so many bytes on average, and scatter by this part of it."""
    squares = looks * mean**2 * (1 + scatter**2)
    return {"batch_sizes": {"looks": looks, "bytes": round(looks * mean), "squares": squares}}


@pytest.mark.parametrize(
    ("own", "explained"),
    [
        ({"mean": 2000.0}, True),
        ({"mean": 1340.0}, True),  # half of the 0.67 by which it is slower
        ({"mean": 1320.0}, False),
        ({"mean": 2000.0, "looks": 4}, False),
        ({"mean": 2000.0, "scatter": 3.0}, False),
    ],
    ids=["twice", "half of it", "less than half", "few sampled batches", "by chance"],
)
def test_cmp007_distinguishes_larger_batches_from_a_slower_processor(own: dict[str, Any], explained: bool) -> None:
    finding = found("CMP007", TABLE.job(facts={"0": sizes(1000.0), "1": sizes(**own)}))
    assert ("its batches are larger" in finding.title) == explained
    assert finding.fixes[0].title.startswith(
        "distribute batches" if explained else "find what rank 1 computes in addition"
    )
    assert finding.saving is not None
    assert finding.saving.speedup[1] == pytest.approx(warm(1 / (0.8 if explained else 0.6))), (
        "both at 0.8, or rank 1 at 0.6"
    )


@pytest.mark.parametrize(
    ("more", "retested"),
    [({}, []), ({"facts": {"1": {"cuda": {"name": "H200"}}}}, ["retest rank 1 on another GPU or host"])],
)
def test_cmp007_asks_for_another_machine_only_where_there_is_one(more: dict[str, Any], retested: list[str]) -> None:
    assert [fix.title for fix in found("CMP007", TABLE.job(**more)).fixes[1:]] == retested


def test_cmp007_counts_on_shared_work_alone_where_the_sizes_of_batches_are_not_known() -> None:
    equal = {str(rank): sizes(1000.0) for rank in (0, 1)}
    known, unknown = (found("CMP007", TABLE.job(usual=0.6, **facts)) for facts in ({"facts": equal}, {}))
    assert known.saving is not None and unknown.saving is not None
    assert known.saving.speedup[1] == unknown.saving.speedup[1]
    assert known.saving.speedup[0] == pytest.approx(1 / 0.7) and unknown.saving.speedup[0] == pytest.approx(1 / 0.8)
    assert (known.fixes[0].change, unknown.fixes[0].change[:20]) == ("", "compare the sizes of")
