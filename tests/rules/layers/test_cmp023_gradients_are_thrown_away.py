"""CMP023, gradients are computed and thrown away: its table and its advice."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.model.analysis import Analysis
from rn50_advisor.advisor.model.findings import Where
from rule_cases import job, rank
from rule_runs import found, judged
from rule_table import Table
from table_checks import Check, checks

CUDA = {"cuda": {"devices": 1}}


def site(**more: Any) -> dict[str, Any]:
    """A discriminator's pass that goes on through the generator."""
    return {
        "file": "/job/gan.py",
        "line": 40,
        "callers": [{"file": "/job/gan.py", "line": 80}],
        "steps": 12,
        "passes": 12,
        "dropped": 12,
        "whole": 0,
        "ns": 60,
        "all_ns": 100,
        "class": "Adam",
        "made": {"file": "/job/gan.py", "line": 12},
        "elements": 300,
        "all_elements": 400,
        "order": "upstream",
        "others": False,
        "products": [1000, 400],
        "points": [10, 4],
        **more,
    }


def cmp023(
    *sites: dict[str, Any], known: bool = True, backward: float = 0.6, gpu: bool = False, **more: Any
) -> Analysis:
    """One rank that trains two networks; by default `more` changes the only site."""
    changes = {name: more.pop(name) for name in list(more) if name in site() or name in ("order", "others")}
    facts = {"watched_gradients": 12, "discarded_gradients": [*(sites or (site(**changes),))]} if known else {}
    own = rank(forward=0.99 - backward, backward=backward)
    return job({0: own}, **{"facts": {"0": {**facts, **(CUDA if gpu else {})}}, **more})


TABLE = Table(
    "CMP023",
    cmp023,
    where=Where("/job/gan.py", 40),
    lines={
        "steps": ({"steps": 12}, {"steps": 11}),
        "cost": ({"backward": 0.2240}, {"backward": 0.2220}),
    },
    false_alarms={
        "most of the passes are used": {"dropped": 6},
        "what is thrown away costs nothing": {"products": [1000, 1], "points": [10, 0]},
    },
    not_measured={"too few steps to see it, or an older recording": ({"known": False}, ("watched_gradients",))},
    severities=(
        ({"backward": 0.88, "products": [1000, 700], "points": [10, 7]}, "critical"),
        ({"backward": 0.8}, "high"),
        ({"backward": 0.3}, "medium"),
    ),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "detach() the outputs of the network with these parameters (those of the Adam made at /job/gan.py:12)"),
        ({"order": "downstream"}, "requires_grad_(False) on the network"),
        ({"order": "downstream", "whole": 12, "others": True}, "torch.autograd.grad(loss, inputs)"),
        ({"order": "whole", "whole": 12}, "remove this backward pass"),
        ({"order": "both"}, "where this loss goes through it: requires_grad_(False)"),
        ({"order": ""}, "is computed from: detach()"),
    ],
)
def test_what_to_change(more: dict[str, Any], words: str) -> None:
    assert words in found("CMP023", cmp023(**more)).fixes[0].change


def test_the_estimate_is_the_share_of_the_work_in_the_graph_of_the_pass() -> None:
    low, high = found("CMP023", cmp023()).saving.seconds_per_step
    assert low == pytest.approx(0.6 * 0.6 * 0.7 * 0.4, rel=0.02) and high >= 0.6 * 0.6 * 1.15 * 0.4


def test_two_passes_are_advised_on_at_once_with_the_dearest_first() -> None:
    second = site(line=55, ns=40, order="downstream", products=[1000, 250], points=[10, 0])
    finding = found("CMP023", cmp023(second, site()))
    assert [fix.where.line for fix in finding.fixes if fix.where] == [40, 55] and len(finding.evidence) == 2
    assert finding.saving.speedup[0] > found("CMP023", cmp023()).saving.speedup[0]


def test_passes_that_share_a_line_are_named_by_their_callers() -> None:
    second = site(callers=[{"file": "/job/gan.py", "line": 90}], ns=40)
    assert {fix.where.line for fix in found("CMP023", cmp023(second, site())).fixes if fix.where} == {80, 90}


def test_a_pass_of_which_nothing_is_used_is_spared_as_a_whole() -> None:
    low, _ = found("CMP023", cmp023(order="whole", whole=12)).saving.seconds_per_step
    assert low == pytest.approx(0.6 * 0.6 * 0.85, rel=0.02)


def test_without_a_graph_the_range_is_wide_and_the_confidence_low() -> None:
    bare = site(order="", ns=90)
    for name in ("products", "points", "others"):
        del bare[name]
    finding = found("CMP023", cmp023(bare))
    low, high = finding.saving.speedup
    assert low < 1.05 and high > 1.3 and finding.confidence <= 0.6


def test_a_gpu_has_a_wider_range() -> None:
    assert found("CMP023", cmp023(gpu=True)).saving.speedup[0] < found("CMP023", cmp023()).saving.speedup[0]


def test_on_a_gpu_a_pass_of_which_nothing_is_used_may_have_been_used_unseen() -> None:
    assert found("CMP023", cmp023(order="whole", whole=12, gpu=True)).confidence <= 0.6
    assert found("CMP023", cmp023(order="whole", whole=12)).confidence > 0.8


def test_a_loop_that_throws_nothing_away_is_clear() -> None:
    analysis = job({0: rank(forward=0.3, backward=0.6)}, facts={"0": {"watched_gradients": 0}})
    [outcome] = [row for row in judged(analysis).outcomes if row.rule == "CMP023"]
    assert outcome.state == "clear"
