"""Failures are recognised by the messages of several versions of PyTorch, NCCL, gloo and torchrun."""

from __future__ import annotations

from pathlib import Path

import pytest

from failure_messages import FOLLOWING
from rn50_advisor.advisor.analysis.failures.known_failures import is_consequence, recognised

# What it is, and its text as some version printed it.
KNOWN = [line.split(" | ", 1) for line in Path(__file__).with_name("failure_texts.txt").read_text().splitlines()]


@pytest.mark.parametrize(("kind", "text"), KNOWN)
def test_a_known_failure_is_recognised_and_comes_with_advice(kind: str, text: str) -> None:
    found = recognised(text)
    assert found is not None and found.kind == kind
    assert found.title and found.advice and "{" not in found.title and "()" not in found.title
    assert not is_consequence(text)


@pytest.mark.parametrize("text", FOLLOWING)
def test_what_follows_from_another_ranks_end_is_no_cause(text: str) -> None:
    assert is_consequence(text) and recognised(text) is None


@pytest.mark.parametrize(
    "text",
    [
        "step 100: loss 0.31, error 12.5 %",
        "ValueError: no such class",
        "timeout set to 600 s",
        "memory 3.1 GB, time 12 s",
        "",
    ],
)
def test_other_lines_are_neither(text: str) -> None:
    assert recognised(text) is None and not is_consequence(text)


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (KNOWN[2][1], "rank 1, 3 never reached the barrier"),
        (KNOWN[4][1], "the NCCL watchdog gave up on a collective (ALLREDUCE)"),
        (KNOWN[6][1], "rank 1 and rank 0 use the same GPU"),
        (KNOWN[8][1], "asked for 55.57 GiB"),
        (KNOWN[19][1], "the ranks did not find each other (1/3 joined)"),
        (KNOWN[20][1], "the ranks did not find each other"),
        ("CUDA out of memory.", "the GPU's memory ran out"),
        (
            "CUDA out of memory. Allocation was preemptively rejected because it would exceed per_process_memory_fraction limit. "
            "Requested size: 2.00 GiB",
            "asked for 2.00 GiB",
        ),
    ],
)
def test_numbers_in_the_text_are_kept(text: str, part: str) -> None:
    found = recognised(text)
    assert found is not None and part in found.title
