"""RUN004, steps stall periodically: its table and its advice."""

from __future__ import annotations

from dataclasses import replace

import pytest

import rule_cases as jobs
from explained_rules import would_be_explained_by, would_explain
from rn50_advisor.advisor.model.changes import PeriodicCall
from rn50_advisor.advisor.model.findings import Where
from rule_cases import SCRIPT
from rule_runs import found
from rule_table import Table, warm
from table_checks import Check, checks

TABLE = Table(
    "RUN004",
    jobs.run004,
    lines={
        "share": ({"share": 0.03}, {"share": 0.0299}),
        "events": ({"events": 5}, {"events": 4}),
    },
    false_alarms={"stalls without a period": {"pulse": None}},
    severities=(
        ({"share": 0.30}, "critical"),
        ({"share": 0.05}, "medium"),
        ({"share": 0.04}, "low"),
        ({"share": 0.3, "coincides": "an evaluation"}, "info"),
    ),
    where=Where(SCRIPT, 93),
    best=({"share": 0.2}, warm(1 / 0.8)),
)


@pytest.mark.parametrize("check", checks(TABLE))
def test_table(check: Check) -> None:
    check(TABLE)


def test_run004_names_period_phase_and_line() -> None:
    finding = found("RUN004", TABLE.job())
    assert finding.title == "Periodic stalls: every 25 steps a step stalls"
    assert found("RUN004", TABLE.job(number=1)).title.endswith(", on rank 1")
    assert would_explain(jobs.run004(number=1), found("RUN004", TABLE.job(number=1))) == {"COM002"}
    assert "every 25 steps after the optimizer" in finding.fixes[0].title
    assert found("RUN004", TABLE.job(phase="forward")).fixes[0].where is None, "stack samples are taken between steps"
    assert "runs on this machine every 26.0 s" in found("RUN004", TABLE.job(steps=None)).fixes[0].title
    assert "write less at once" in found("RUN004", TABLE.job(coincides="a disk flush")).fixes[0].title


@pytest.mark.parametrize(
    ("coincides", "rule"),
    [
        ("an epoch begins", "DAT006"),
        ("a checkpoint", "LOP001"),
        ("an evaluation", "LOP003"),
        ("a garbage collection", "CPU006"),
    ],
)
def test_run004_is_only_a_note_if_another_rule_judges(coincides: str, rule: str) -> None:
    finding = found("RUN004", TABLE.job(coincides=coincides, share=0.4))
    assert finding.severity == "info" and rule in would_be_explained_by(
        jobs.run004(coincides=coincides, share=0.4), finding
    )
    assert finding.evidence[2].note == f"coincides with: {coincides}"


def test_run004_is_a_consequence_of_costly_items_if_steps_stall_while_they_wait_for_them() -> None:
    """Each eighth batch called the collector, and the loop waited for it: RUN004 cost a little more than DAT020."""
    costly = {f"DAT0{number}" for number in (11, 15, 16, 17, 18, 19, 20, 22)}
    for phase, explained in (("input_wait", True), ("forward", False)):
        made = jobs.run004(phase=phase)
        assert (costly <= would_be_explained_by(made, found("RUN004", made))) == explained


def test_run004_says_that_stalls_grow_and_where_a_part_of_them_lies() -> None:
    pulse = jobs.run004(phase="backward").pulse
    assert pulse is not None
    hot = (jobs.hot(70, "fit", io=False),)
    grown = found("RUN004", TABLE.job(pulse=replace(pulse, gap_share=0.2, grew=(0.2, 0.8)), hot_lines=hot))
    assert "growing from 200 ms to 800 ms" in grown.evidence[0].note and "since it grows" in grown.fixes[0].title
    assert grown.fixes[0].where == Where(SCRIPT, 70)
    alike = found("RUN004", TABLE.job(pulse=replace(pulse, gap_share=0.19), hot_lines=hot))
    assert "grow" not in alike.evidence[0].note + alike.fixes[0].title and alike.fixes[0].where is None


def test_run004_needs_no_fix_if_the_model_computes_more() -> None:
    finding = found("RUN004", TABLE.job(coincides="more work for the model", share=0.4, phase="backward"))
    assert finding.severity == "info" and finding.title == "Periodic stalls: every 25 steps a step computes more"
    assert finding.fixes[0].title.startswith("no fix is needed") and finding.saving is None
    assert found("RUN004", TABLE.job(coincides="an evaluation")).saving is not None


@pytest.mark.parametrize(
    ("in_model", "collects", "severity", "advice"),
    [
        (0.2, False, "info", "no fix is needed if this collects"),
        (0.6, True, "info", "no fix is needed if this collects"),
        (0.6, False, "high", "find what the loop does every 25 steps"),
        (0.0, False, "high", "find what the loop does every 25 steps"),
        (0.0, True, "high", "find what the loop does every 25 steps"),
    ],
    ids=["a rollout", "a rollout of a small environment", "an evaluation", "something else", "a file that is read"],
)
def test_run004_names_the_call_that_stalls_and_leaves_a_rollout_alone(
    in_model: float, collects: bool, severity: str, advice: str
) -> None:
    pulse = jobs.run004(phase="forward").pulse
    assert pulse is not None
    call = PeriodicCall(SCRIPT, 23, "rollout", 0.2, in_model, collects)
    finding = found("RUN004", TABLE.job(pulse=replace(pulse, call=call)))
    assert finding.severity == severity and finding.title == "Periodic stalls: every 25 steps a step stalls: rollout"
    assert finding.fixes[0].where == Where(SCRIPT, 23) and finding.fixes[0].title.startswith(advice)
    assert (finding.saving is None) == (severity == "info")
    assert "line 23 takes 20 % of the time" in finding.evidence[2].note
