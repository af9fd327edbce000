"""Extra work of a job since the step at which it became slower."""

from __future__ import annotations

from dataclasses import replace

import pytest

from recordings import plan, recording
from rn50_advisor.advisor.analysis.steps.speed_changes import speed_changes
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps, steady_steps
from rn50_advisor.advisor.analysis.steps.work_changes import more_work
from rn50_advisor.probes.documents.rank_documents import RankFacts

BEFORE = [3, 1000, 7, 4000]  # step, parameters that learn, the first of them, bytes of a batch


@pytest.mark.parametrize(
    ("after", "phase", "words"),
    [
        pytest.param([500, 90_000, 7, 4000], "backward", "90,000 parameters learn, 1,000 before", id="unfrozen"),
        pytest.param([500, 90_000, 7, 4000], "comm_exposed", "90,000 parameters learn", id="and exchanged"),
        pytest.param(
            [500, 900, 8, 4000],
            "forward",
            "900 parameters learn, and not the same 1,000 as before",
            id="a second model",
        ),
        pytest.param([500, 1000, 7, 8000], "forward", "a batch holds 2.00× the bytes", id="larger pictures"),
        pytest.param([500, 900, 7, 4000], "backward", "", id="fewer learn: that makes nobody slower"),
        pytest.param([500, 1000, 7, 2000], "forward", "", id="smaller pictures neither"),
        pytest.param([500, 1000, 7, 5000], "forward", "", id="a little larger for twice the time"),
        pytest.param([500, 90_000, 7, 4000], "gap", "", id="what grew is none of the model's"),
        pytest.param([400, 90_000, 7, 4000], "backward", "", id="long before"),
        pytest.param([600, 90_000, 7, 4000], "backward", "", id="long after"),
        pytest.param([524, 90_000, 7, 4000], "backward", "90,000", id="seen a little later"),
    ],
)
def test_more_work_is_distinguished_from_a_job_that_became_slower(after: list[int], phase: str, words: str) -> None:
    text = more_work({"work": [BEFORE, after]}, 500, (0.1, 0.2), phase)
    assert text.startswith(words) and bool(text) == bool(words)


def counts(before: int, after: int, each: int = 5) -> RankFacts:
    rows = [[10 * n, before] for n in range(each)] + [[500 + 10 * n, after] for n in range(each)]
    return {"operations": {"steps": 99, "nodes": 9900, "low_ns": 1, "by_step": rows}}


@pytest.mark.parametrize(
    ("facts", "phase", "words"),
    [
        pytest.param(
            counts(120, 900), "forward", "900 differentiable operations in a step, 120 before", id="longer episodes"
        ),
        pytest.param(counts(100, 150), "backward", "150", id="half of what the steps grew by"),
        pytest.param(counts(100, 149), "backward", "", id="less than that"),
        pytest.param(counts(120, 900, each=4), "forward", "", id="too few counts"),
        pytest.param(counts(120, 900), "gap", "", id="between the steps"),
    ],
)
def test_steps_with_more_operations_have_more_work(facts: RankFacts, phase: str, words: str) -> None:
    text = more_work(facts, 500, (0.1, 0.2), phase)
    assert text.startswith(words) and bool(text) == bool(words)


def test_counts_of_another_version_are_left_out() -> None:
    facts = counts(120, 900)
    facts["operations"]["by_step"] += [[1, 2, 3], [4]]
    assert more_work(facts, 500, (0.1, 0.2), "forward")


def test_without_inspections_nothing_is_known() -> None:
    assert not more_work({}, 500, (0.1, 0.2), "forward")
    assert not more_work({"work": [BEFORE]}, 500, (0.1, 0.2), "forward")
    assert not more_work({"work": [BEFORE, [500, 1]]}, 500, (0.1, 0.2), "forward"), "written by another version"


def test_long_steps_are_near_each_other_by_their_number() -> None:
    facts = {"work": [BEFORE, [504, 90_000, 7, 4000]]}
    assert more_work(facts, 500, (10.0, 20.0), "backward")


@pytest.mark.parametrize("rank", [0, 1])
def test_a_change_carries_the_work_of_the_rank_that_it_is_about(rank: int) -> None:
    """Rank 1 alone is slower: what rank 0 has to do says nothing of it."""
    slower = [*plan(200), *plan(200, backward=110)]
    facts = {100 + rank: {"work": [BEFORE, [200, 90_000, 7, 4000]]}}
    made = recording({0: plan(400), 1: slower}, facts=facts)
    (change,) = speed_changes(made, steady_steps(all_steps(made)))
    assert change.rank == 1 and bool(change.work) == (rank == 1)
    alone = replace(recording({0: slower}), facts={100: facts[100 + rank]})
    (change,) = speed_changes(alone, steady_steps(all_steps(alone)))
    assert change.work.startswith("90,000")
