"""Evidence as part of a sentence: with its value where the note needs one."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.findings import Evidence
from rn50_advisor.advisor.model.wording.evidence_words import begun, phrase, sentence


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (Evidence("step.skew_s", 0.4, "s", None, "rank 1 waits 400 ms"), "rank 1 waits 400 ms"),
        (Evidence("step.gap_s", 0.0228, "s", None, "after the optimizer", "continues"), "22.8 ms after the optimizer"),
        (Evidence("input_share", 0.704, "share", None, "of the step", "continues"), "70 % of the step"),
        (
            Evidence("swap.read_mb_s", 8.0, "MB/s", None, "read back from swap", "explains"),
            "8 MB/s: read back from swap",
        ),
        (Evidence("loader.workers", 1.0, "workers", None, "in each rank", "continues"), "1 worker in each rank"),
        (Evidence("where", "augment", "", None, "in each sample", "continues"), "augment in each sample"),
        (Evidence("unknown", None, "s", None, "not counted", "continues"), "not counted"),
    ],
)
def test_a_note_has_its_value_in_front_unless_it_stands_alone(evidence: Evidence, said: str) -> None:
    assert phrase(evidence) == said


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("36 % of a 997 ms step", "input wait: 36 % of a 997 ms step"),
        ("36 % of the step, on the critical path", "input wait: 36 % of the step, on the critical path"),
        ("36 % of the step is host-bound", "36 % of the step is host-bound"),
        ("rank 1 waits 400 ms", "rank 1 waits 400 ms"),
    ],
)
def test_a_bare_share_says_of_what_it_is(note: str, said: str) -> None:
    assert sentence(Evidence("step.input_wait_s", 0.4, "s", None, note)) == said


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("input wait: 36 %", "Input wait: 36 %"),
        ("train_step was recompiled", "train_step was recompiled"),
        (".item() at", ".item() at"),
        ("", ""),
    ],
)
def test_a_sentence_begins_with_a_capital_unless_with_a_name(words: str, said: str) -> None:
    assert begun(words) == said
