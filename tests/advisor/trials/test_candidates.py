"""Which fixes are tried: those with a change as data and a gain, best predicted first; the others with the reason."""

from __future__ import annotations

from dataclasses import replace

import pytest

import report_samples as samples
from rn50_advisor.advisor.model.errors import UsageError
from rn50_advisor.advisor.model.findings import Finding, Fix, Saving, Where
from rn50_advisor.advisor.model.job_changes import CallChange, GradientsKept, JobChange
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.model.trials import Predicted
from rn50_advisor.advisor.trials.candidates import can_be_tried, candidates
from rn50_advisor.advisor.trials.knobs import NO_CHANGE, OTHER_TRAINING, REWRITES

WORKERS = CallChange.of("DataLoader", num_workers=2)
BATCH = CallChange.of("DataLoader", batch_size=64)


def finding(
    rule: str, *changes: JobChange | None, likely: float | None = 1.5, explained_by: str | None = None
) -> Finding:
    model = samples.bottleneck().findings[0]
    saving = Saving((0.01, 0.02), (likely - 0.1, likely + 0.1), "model", likely=likely) if likely else None
    fixes = tuple(
        Fix(f"fix {n}", "by hand", Where("/job/train.py", n + 1), call=call) for n, call in enumerate(changes)
    )
    return replace(model, rule=rule, saving=saving, fixes=fixes, explained_by=explained_by)


def report(*findings: Finding) -> Report:
    return replace(samples.bottleneck(), findings=findings)


def test_the_best_predicted_comes_first_with_its_prediction() -> None:
    tried, refused = candidates(report(finding("DAT003", WORKERS, likely=1.2), finding("CPU005", WORKERS, likely=1.6)))
    assert [one.finding.rule for one in tried] == ["CPU005", "DAT003"]
    assert tried[0].trial(outcome="undecided").predicted == Predicted(1.6, pytest.approx(1.5), pytest.approx(1.7))
    assert refused == []


def test_what_another_finding_causes_and_what_promises_nothing_is_left_out() -> None:
    made = report(
        finding("DAT003", WORKERS),
        finding("COM002", WORKERS, explained_by="DAT003"),
        finding("H2D001", WORKERS, likely=None),
        finding("CPU002", WORKERS, likely=0.9),
    )
    tried, refused = candidates(made)
    assert [one.finding.rule for one in tried] == ["DAT003"]
    assert refused == []


def test_the_first_fix_that_can_be_applied_from_outside_is_tried() -> None:
    tried, refused = candidates(report(finding("COM001", None, GradientsKept(), WORKERS)))
    assert [one.fix.title for one in tried] == ["fix 2"]
    assert refused == []


@pytest.mark.parametrize(("change", "why"), [(None, NO_CHANGE), (GradientsKept(), REWRITES), (BATCH, OTHER_TRAINING)])
def test_what_cannot_be_tried_is_refused_with_its_reason(change: JobChange | None, why: str) -> None:
    tried, [refused] = candidates(report(finding("CMP005", change)))
    assert tried == []
    assert (refused.rule, refused.outcome, refused.reason) == ("CMP005", "refused", why)
    assert refused.predicted == Predicted(1.5, pytest.approx(1.4), pytest.approx(1.6))


def test_a_fix_without_any_change_is_refused_too() -> None:
    tried, [refused] = candidates(report(finding("LOP003")))
    assert tried == []
    assert refused.reason == NO_CHANGE


def test_rules_that_are_asked_for_are_tried_alone_whatever_they_promise() -> None:
    made = report(finding("DAT003", WORKERS), finding("CMP005", BATCH, likely=None))
    tried, refused = candidates(made, asked=("CMP005",))
    assert [one.finding.rule for one in tried] == ["CMP005"]
    assert refused == []
    with pytest.raises(UsageError, match="no finding of DAT004") as unknown:
        candidates(made, asked=("DAT004",))
    assert "DAT003" in unknown.value.hint


def test_a_trial_says_what_to_change_by_hand() -> None:
    [candidate], _ = candidates(report(finding("DAT003", WORKERS)))
    trial = candidate.trial(outcome="undecided", reason="too few pairs")
    assert (trial.knob, trial.change, trial.applied) == ("DataLoader(..., num_workers=2)", "by hand", None)
    typed = replace(candidate, fix=replace(candidate.fix, typed=("--workers 2",)))
    assert typed.trial(outcome="undecided").change == "--workers 2"


def test_a_finding_can_be_tried_if_one_of_its_fixes_can() -> None:
    assert can_be_tried(finding("DAT003", None, WORKERS))
    assert not can_be_tried(finding("COM001", None, GradientsKept()))
    assert not can_be_tried(finding("LOP003"))
