"""Compilations after the first steps are counted, with what they take of a step."""

from __future__ import annotations

import pytest

from recordings import plan, recording
from rn50_advisor.advisor.analysis.pipeline import analyse
from rn50_advisor.advisor.analysis.steps.pauses import WARM_UP_STEPS
from rn50_advisor.advisor.analysis.steps.steady_state import all_steps
from rn50_advisor.probes.rank.layout import COMPILATIONS_MAX

STEPS = 150


def values(*begun_in: int, took_ns: int = 30_000_000) -> dict[str, float]:
    """What is measured where dynamo compiled in the middle of these steps."""
    bare = recording({0: plan(STEPS)})
    rows = all_steps(bare)[0]
    middle = {
        int(number): int((a + b) // 2) for number, a, b in zip(rows.step, rows.start_ns, rows.end_ns, strict=True)
    }
    told = [{"began_ns": middle[step], "took_ns": took_ns, "reason": ""} for step in begun_in]
    found = analyse(recording({0: plan(STEPS)}, facts={100: {"compilations": told}} if told else {})).values
    return {name: value for (name, scope), value in found.items() if scope == "rank:0" and name.startswith("compile.")}


def test_only_what_is_compiled_after_the_first_steps_counts() -> None:
    found = values(3, 20, WARM_UP_STEPS + 10, WARM_UP_STEPS + 30)
    assert found["compile.late"] == 2
    assert found["compile.late_s"] == pytest.approx(2 * 0.03 / (STEPS - WARM_UP_STEPS), rel=0.1)


def test_a_job_that_compiles_in_its_first_steps_has_none_late() -> None:
    assert values(3, 20) == {"compile.late": 0.0, "compile.late_s": 0.0}


def test_where_a_rank_kept_the_latest_alone_only_the_steps_since_then_count() -> None:
    found = values(*range(STEPS - COMPILATIONS_MAX, STEPS))
    assert found["compile.late"] == COMPILATIONS_MAX
    assert found["compile.late_s"] == pytest.approx(0.03, rel=0.05), "one in each of these steps, not in each of all"


def test_without_a_compilation_nothing_is_measured() -> None:
    assert values() == {}
