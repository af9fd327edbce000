"""Evidence as part of a sentence: its value and the metric's title where the note needs them."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.model.findings import Evidence
from rn50_advisor.advisor.model.wording.evidence_words import amount, begun, grammatical, in_full, sentence


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (Evidence("step.skew_s", 0.4, "s", None, "rank 1 waits 400 ms"), "rank 1 waits 400 ms"),
        (Evidence("step.gap_s", 0.0228, "s", None, "after the optimizer", "continues"), "22.8 ms after the optimizer"),
        (Evidence("input_share", 0.704, "share", None, "of the loop", "continues"), "70 % of the loop"),
        (
            Evidence("memory.swap_in_mb_per_s", 8.0, "MB/s", None, "read back from swap", "explains"),
            "swap-in rate: 8 MB/s, read back from swap",
        ),
        (Evidence("fetch.gc_share", 1.01, "", None, "of batch preparation", "explains"),
         "garbage collection in workers: 101 % of batch preparation"),
        (Evidence("loader.workers", 1.0, "workers", None, "in each rank", "continues"), "1 worker in each rank"),
        (Evidence("gpu.foreign_processes", 1.0, "processes", None, "on it", "continues"), "1 process on it"),
        (Evidence("where", "augment", "", None, "in each sample", "continues"), "augment in each sample"),
        (Evidence("fetch.slow_ratio", 36.0, "×", None, "the median time of a batch", "explains"),
         "slow batch, relative to the median: 36× the median time of a batch"),
        (Evidence("unknown", None, "s", None, "not counted", "continues"), "not counted"),
        (Evidence("step.gap_s", 0.2, "s"), "time between steps 200 ms"),
    ],
)  # fmt: skip
def test_a_note_has_its_value_in_front_unless_it_stands_alone(evidence: Evidence, said: str) -> None:
    assert sentence(evidence) == said


@pytest.mark.parametrize(
    ("note", "said"),
    [
        ("36 % of a 997 ms step", "input wait: 36 % of a 997 ms step"),
        ("36 % of the step, on the critical path", "input wait: 36 % of the step, on the critical path"),
        ("36 % of the step is host-bound", "36 % of the step is host-bound"),
        ("rank 1 waits 400 ms", "rank 1 waits 400 ms"),
        ("of a 997 ms step", "input wait: 400 ms of a 997 ms step"),
        ("at train.py:42", "input wait: 400 ms at train.py:42"),
        ("train.py:42 in forward", "at train.py:42 in forward"),
    ],
)
def test_what_cannot_stand_alone_says_what_it_is_about(note: str, said: str) -> None:
    assert sentence(Evidence("step.input_wait_s", 0.4, "s", None, note)) == said


def test_a_part_of_the_step_says_which_part_though_it_continues_its_value() -> None:
    note = "of an 84.1 ms step in AdamW, which is not fused"
    assert sentence(Evidence("optimizer", 0.01, "s", None, note.replace("an ", "a "), "continues")) == (
        f"optimizer: 10.0 ms {note}"
    )
    clause = "of a 51.7 ms step rank 0's training thread sleeps"
    assert sentence(Evidence("step.waiting_s", 0.01, "s", None, clause, "continues")) == f"10.0 ms {clause}"


@pytest.mark.parametrize(
    ("evidence", "value", "threshold"),
    [
        (Evidence("denormal.state", 0.185, "", 0.01), "18 %", "1.0 %"),
        (Evidence("parameters in no optimizer", 1.0, "share"), "100 %", "–"),
        (Evidence("same batches", 1.0, "", 0.9), "100 %", "90 %"),
        (Evidence("fetch.cpu_share", 1.01, "", 0.7), "101 %", "70 %"),
        (Evidence("compile.late", 35.0, "", 3.0), "35", "3"),
        (Evidence("layout.channels_first", 1.0), "1", "–"),
        (Evidence("sync.calls", 1.0, "calls", 0.5), "1", "0.500"),
        (Evidence("cpu.affinity_cores", 1.0, "cores"), "1 core", "–"),
        (Evidence("gpu.idle_beside", 1.0, "GPUs", 1.0), "1 GPU", "1 GPU"),
    ],
)
def test_a_fraction_is_a_percentage_and_a_count_a_count(evidence: Evidence, value: str, threshold: str) -> None:
    assert (amount(evidence, evidence.value), amount(evidence, evidence.threshold)) == (value, threshold)


@pytest.mark.parametrize(
    ("note", "form", "said"),
    [
        ("of a 116 ms step", "continues", "step time: 45.3 ms of a 116 ms step; threshold 6.97 ms"),
        ("since 0:10", "explains", "step time: 45.3 ms since 0:10; threshold 6.97 ms"),
        ("rank 1 is slow", "alone", "step time: 45.3 ms (threshold 6.97 ms), rank 1 is slow"),
        ("", "alone", "step time: 45.3 ms (threshold 6.97 ms)"),
    ],
)
def test_in_full_it_has_title_value_and_threshold(note: str, form: str, said: str) -> None:
    assert in_full(Evidence("step.time_s", 0.0453, "s", 0.00697, note, form)) == said  # type: ignore[arg-type]


@pytest.mark.parametrize("number", ["8.1 ms", "84 ms", "11 ms", "11.5 ms", "18.2 ms", "842 ms"])
def test_an_before_a_vowel(number: str) -> None:
    assert grammatical(f"36 % of a {number} step") == f"36 % of an {number} step"


@pytest.mark.parametrize("number", ["9 ms", "110 ms", "1.18 s", "180 ms"])
def test_a_before_other_numbers(number: str) -> None:
    assert grammatical(f"of a {number} step") == f"of a {number} step"


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
