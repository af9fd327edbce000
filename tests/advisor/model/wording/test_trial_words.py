"""Trials in words."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

import trial_samples as samples
from rn50_advisor.advisor.model.findings import Finding
from rn50_advisor.advisor.model.trials import MeasuredSpeedup, Predicted, Trial, Tried
from rn50_advisor.advisor.model.wording import trial_words


@pytest.mark.parametrize(
    ("made", "answer", "words"),
    [
        (samples.several, "faster", "1.52× as fast (1.49–1.56×) with DataLoader.num_workers=2 (DAT003)"),
        (samples.without_gain, "no_gain", "none of 2 changes makes this job faster"),
        (samples.undecided, "undecided", "no change is certain to make this job faster; 1 of 2 undecided"),
        (samples.nothing_tried, "refused", "no advised change could be tried"),
        (lambda: replace(samples.without_gain(), trials=(samples.FUSED,)), "no_gain", "the change makes this job no faster"),
        (lambda: Tried((), ()), "refused", "there is no advised change to try"),
    ],
)  # fmt: skip
def test_the_answer_of_all_trials(made: Callable[[], Tried], answer: str, words: str) -> None:
    assert (trial_words.answer(made()), trial_words.headline(made())) == (answer, words)


@pytest.mark.parametrize(
    ("expected", "words"),
    [
        (Predicted(1.45, 1.3, 1.6), "1.45× (1.3–1.6×)"),
        (Predicted(None, 1.0, 3.0), "1.00–3.00×"),
        (None, "–"),
    ],
)
def test_a_prediction_has_its_range(expected: Predicted | None, words: str) -> None:
    assert trial_words.predicted(expected) == words


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (samples.WORKERS, ""),
        (samples.THREADS, "results differ by rounding"),
        (samples.AUTOCAST, "check the accuracy: the job computes other numbers with it"),
        (samples.FUSED, ""),
        (samples.SLOWER, "5–9 % slower"),
        (replace(samples.AUTOCAST, reason="slow"), "slow; check the accuracy: the job computes other numbers with it"),
    ],
)
def test_what_to_know_before_one_keeps_it(trial: Trial, words: str) -> None:
    assert trial_words.note(trial) == words


@pytest.mark.parametrize(
    ("knob", "width", "shown"),
    [
        ("DataLoader.num_workers=2", 24, "DataLoader.num_workers=2"),
        ("DataLoader.num_workers=2", 20, "num_workers=2"),
        ("DataLoader.num_workers=2, DataLoader.prefetch_factor=4", 33, "num_workers=2, prefetch_factor=4"),
        ("torch.set_num_threads(2)", 20, "torch.set_num_threa…"),
        ("DataLoader(..., num_workers=2, pin_memory=True)", 31, "num_workers=2, pin_memory=True"),
        ("DataLoader(..., num_workers=2, persistent_workers=True)", 20, "num_workers=2, pers…"),
    ],
)
def test_a_change_fits_its_column(knob: str, width: int, shown: str) -> None:
    assert trial_words.fitted(knob, width) == shown


def test_all_at_once_that_bring_no_more_are_told_so() -> None:
    several = samples.several()
    assert trial_words.together(several) == "all 3 at once: 1.71× (1.65–1.78×)"
    less = replace(several, together=MeasuredSpeedup(1.5, 1.45, 1.55, 8))
    assert trial_words.together(less) == "all 3 at once: 1.50× (1.45–1.55×), no more than DAT003 alone"
    assert trial_words.together(samples.without_gain()) == ""


def test_speed_is_told_where_it_was_measured() -> None:
    assert trial_words.speed(samples.several()) == "40.1 samples/s as it is, about 61.1 with DAT003"
    assert (
        trial_words.speed(samples.without_gain()) == "812 samples/s as it is"
        and trial_words.speed(samples.undecided()) == ""
    )


def test_the_largest_gain_comes_first_and_only_the_faster_ones_do() -> None:
    assert [trial.rule for trial in trial_words.winners(samples.several())] == ["DAT003", "CMP001", "CPU009"]


def finding(rule: str, title: str = "") -> Finding:
    return Finding(rule, title, "high", 0.9, 0.1)


@pytest.mark.parametrize(
    ("tried", "of", "words"),
    [
        (samples.several(), finding("DAT003"), "1.52× (1.49–1.56×)"),
        (samples.several(), finding("CPU009"), "1.18× (1.12–1.24×); results differ by rounding"),
        (samples.several(), finding("CMP014"), "1.00× (0.99–1.02×); no gain"),
        (
            samples.several(),
            finding("COM004"),
            "1.03× (0.97–1.09×); undecided; about 12 more pairs (1m 36s) would decide",
        ),
        (samples.several(), finding("LOP002"), ""),  # refused
        (samples.several(), finding("GPU001"), ""),
        (None, finding("DAT003"), ""),
    ],
)
def test_a_finding_is_told_what_its_fix_has_brought(tried: Tried | None, of: Finding, words: str) -> None:
    assert trial_words.of_finding(tried, of) == words


def test_of_two_findings_of_a_rule_each_has_its_own_trial() -> None:
    other = replace(samples.WORKERS, title="of rank 1", measured=MeasuredSpeedup(1.1, 1.05, 1.15, 8))
    tried = Tried((samples.WORKERS, other), ())
    assert trial_words.of_finding(tried, finding("DAT003", "of rank 1")) == "1.10× (1.05–1.15×)"
    assert trial_words.of_finding(tried, finding("DAT003", samples.WORKERS.title)) == "1.52× (1.49–1.56×)"
