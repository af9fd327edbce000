"""What several rules on GPUs, compute and copies have in common."""

from __future__ import annotations

from dataclasses import replace

import pytest

import pace_rule_cases as pace_jobs
from rn50_advisor.advisor.model.gpu.gpu_pace import CallSites
from rn50_advisor.advisor.model.thresholds import Config
from rn50_advisor.advisor.verdict.rule_engine import judge
from rn50_advisor.rules.registry import all_rules
from rule_runs import all_words, found


@pytest.mark.parametrize(("share", "cause"), [(0.05, "CMP004"), (0.3, None)])
def test_idle_time_between_steps_is_promised_once(share: float, cause: str | None) -> None:
    held, waiting = pace_jobs.h2d002(share=share, gap=0.2), pace_jobs.cmp004(gap=0.2)
    both = replace(held, values={**held.values, **waiting.values}, call_sites=waiting.call_sites)
    causes = {f.rule: f.explained_by for f in judge(both, all_rules(), Config()).findings}
    assert (causes["CMP004"], causes["H2D002"]) == (None, cause)


@pytest.mark.parametrize("rule", ["H2D001", "H2D002"])
def test_a_buffer_that_is_filled_keeps_its_call(rule: str) -> None:
    made = pace_jobs.h2d001() if rule == "H2D001" else pace_jobs.h2d002()
    filled = CallSites((), tuple(replace(copy, call="copy_") for copy in made.call_sites.copies))
    assert ".copy_(batch, non_blocking=True)" in all_words(found(rule, replace(made, call_sites=filled)))
