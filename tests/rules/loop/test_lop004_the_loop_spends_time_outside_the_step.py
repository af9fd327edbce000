"""LOP004, the loop spends time outside the step: its table and its advice."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

import rule_cases as jobs
from rn50_advisor.advisor.model.analysis import Analysis, EachTensor
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT, rank
from rule_runs import found
from rule_table import Table, waits, warm
from table_checks import Check, checks

TABLE = Table(
    "LOP004",
    jobs.lop004,
    lines={
        "gap": ({"spent": 0.05}, {"spent": 0.0499}),
        "seconds": ({"spent": 0.0002, "step_s": 0.001}, {"spent": 0.000199, "step_s": 0.001}),
        "output": ({"output": 0.499}, {"output": 0.5}),
    },
    false_alarms={
        "a few metrics": {"spent": 0.03},
        "schedule and accuracy of a step of a millisecond": {"spent": 0.00015, "step_s": 0.001},
        "output, which is LOP002's": {"output": 0.9},
    },
    severities=waits("spent"),
    where=Where(SCRIPT, 93),
    best=({"spent": 0.2}, warm(1 / 0.8)),
    also_fires={"no stack samples could be had": {"output": None, "seen": False}},
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_lop004_without_stack_samples_is_less_sure() -> None:
    blind = found("LOP004", TABLE.job(output=None, seen=False))
    assert blind.fixes[0].where is None and blind.confidence < found("LOP004", TABLE.job()).confidence


def test_lop004_names_the_line_that_calls_the_function() -> None:
    given = jobs.lop004()
    lines = tuple(replace(line, called_at="/job/loop.py:53") for line in given.hot_lines)
    finding = found("LOP004", replace(given, hot_lines=lines))
    assert finding.fixes[0].change == "the loop calls it at /job/loop.py:53"
    assert finding.fixes[0].title.startswith("move smooth_weights out")
    assert any(evidence.note.endswith(", called at /job/loop.py:53") for evidence in finding.evidence)
    own = found("LOP004", given).fixes[0]  # the function may be the one that trains
    assert own.change == "" and own.title.startswith("move this line out")


def test_a_model_that_the_loop_runs_too_often_is_named_by_the_line_that_calls_it() -> None:
    given = jobs.lop004()
    lines = tuple(replace(line, function="Noise.forward", called_at="/job/loop.py:53") for line in given.hot_lines)
    (fix,) = found("LOP004", replace(given, hot_lines=lines)).fixes
    assert "every N steps, or on fewer samples" in fix.title and fix.where == Where("/job/loop.py", 53)


def by_tensor(does: EachTensor, share: float = 1.0, **more: Any) -> Analysis:
    """A fifth of the step between steps, and this share of it in a loop over the model's tensors."""
    given = jobs.lop004(**more)
    line = replace(given.hot_lines[1], each_tensor=does, share=share)
    return replace(given, hot_lines=(line, replace(line, each_tensor="", share=1.0 - share)))


@pytest.mark.parametrize(("does", "left"), [("new", (0.19, 0.43)), ("in place", (0.45, 0.95))])
def test_a_loop_over_tensors_is_done_all_at_once(does: EachTensor, left: tuple[float, float]) -> None:
    finding = found("LOP004", by_tensor(does))
    (fix,) = finding.fixes
    assert "all tensors at once and in place in this line" in fix.title and "_foreach_lerp_" in fix.change
    saving = finding.saving
    assert saving is not None
    best, worst = left
    assert saving.speedup == pytest.approx((1 / (0.8 + 0.2 * worst), warm(1 / (0.8 + 0.2 * best))))
    assert not found("LOP004", by_tensor("")).fixes[0].change


def test_what_else_is_between_steps_remains() -> None:
    saving = found("LOP004", by_tensor("new", 0.5)).saving
    assert saving is not None
    left_s = 0.1 + 0.1 * 0.43
    assert saving.speedup[0] == pytest.approx(1 / (0.8 + left_s))


def test_on_a_gpu_a_loop_over_tensors_counts_as_any_other_line() -> None:
    facts = {"0": {"cuda": {"devices": 1}}}
    given = by_tensor("in place", facts=facts)
    saving, usual = found("LOP004", given).saving, found("LOP004", by_tensor("", facts=facts)).saving
    assert given.on_gpu and saving is not None and saving == usual


# Milliseconds on one core: the rest of the step, the average of its weights by tensor, and with `_foreach_lerp_`
MEASURED = ((52.32, 15.75, 4.49, "new"), (25.51, 4.19, 1.47, "new"), (57.29, 7.14, 4.49, "in place"))


@pytest.mark.parametrize(("rest", "before", "after", "does"), MEASURED)
def test_what_was_measured_is_inside_the_two_cases(rest: float, before: float, after: float, does: EachTensor) -> None:
    saving = found("LOP004", by_tensor(does, spent=before / (rest + before))).saving
    gain = (rest + before) / (rest + after)
    assert saving is not None and saving.speedup[0] <= gain <= saving.speedup[1]


@pytest.mark.parametrize(
    ("others", "ranks", "title"), [(0.05, (0,), "on rank 0"), (0.07, (), "steps"), (0.2, (), "steps")]
)
def test_time_between_steps_is_that_of_the_ranks_that_spend_it(
    others: float, ranks: tuple[int, ...], title: str
) -> None:
    given = jobs.job({0: rank(gap=0.2), 1: rank(gap=others), 2: rank(gap=others)}, values={"gap.io_share": 0.1})
    finding = found("LOP004", given)
    assert finding.scope.ranks == ranks and finding.title.endswith(title)
    model, saving = given.model, finding.saving
    assert model is not None and saving is not None
    after_s = model.step_if({(number, "gap"): 0.0 for number in model.own})
    assert saving.speedup[1] == pytest.approx(model.step_s / model.at_best(after_s))


@pytest.mark.parametrize(("others", "hosts", "computes_s"), [(0.0, 1, 0.6), (0.0, 2, 0.7), (0.2, 1, 0.7)])
def test_ranks_wait_for_cores_by_turns_once_none_works_while_the_others_wait(
    others: float, hosts: int, computes_s: float
) -> None:
    own = {0: rank(0.7, gap=0.2), 1: rank(0.7 + others, gap=others)}
    values = {"gap.io_share": 0.1, "step.run_delay_s": {0: 0.0, 1: 0.2}}
    given = jobs.job(own, values=values)
    assert given.model is not None
    model = replace(given.model, hosts=hosts)
    saving = found("LOP004", replace(given, model=model)).saving
    assert saving is not None
    # rank 0 computes 0.5 s and rank 1 0.7 s, of which it waits 0.2 s for a core; a wire of nothing, and no less jitter than work
    after_s = model.step_if({(n, "gap"): 0.0 for n in own}) * computes_s / 0.7
    assert saving.speedup[1] == pytest.approx(model.step_s / model.at_best(after_s))
