"""Measures Fourier transforms of lengths with a large prime factor in the timed backward passes, and finds the lines that call them."""

from __future__ import annotations

import re
from collections.abc import Mapping

from rn50_advisor.advisor.analysis.stacks.loop_lines import longest, step_rows
from rn50_advisor.advisor.analysis.stacks.stack_profiles import line_of
from rn50_advisor.advisor.analysis.stacks.timed_passes import NOT_TIMED, every_timed_pass, timed_passes
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_TRANSFORMS_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.model_documents import BackwardNodeTimes

# Torch 2.14 on a CPU, 512 rows there and back, in us for each number of a row: 0.3 to 1.8 with factors up to 5, 0.8 to 2.3 up to 31, 1.7
# and 2.1 with 61 and 97, 3.2 with 127, 1.4 to 3.1 with 227 to 257, 5 to 8 in prime lengths of some thousands and with 263.
_FACTOR_MIN = 100
_CALLS = re.compile(r"\bi?r?h?fftn?2?\(|\bi?stft\(")


def transform_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds of each rank's backward pass per step."""
    found = Measured()
    for rank, timed, each_s in timed_passes(recording, steady):
        if timed is None or "transforms" not in timed:
            found.missing[STEP_TRANSFORMS_S, rank] = NOT_TIMED
        else:
            found[STEP_TRANSFORMS_S, rank] = sum(ns for _, ns in _awkward(timed)) * each_s
    return found


def transforming_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The user's lines that call Fourier transforms, over all ranks, the longest first. `leaf`: the awkward length with most of the time.

    Empty where no recorder saw one: nobody would ask for them.
    """
    lengths = {length: ns for nodes in every_timed_pass(recording) for length, ns in _awkward(nodes)}
    if not lengths:
        return ()
    length = str(max(lengths, key=lambda each: lengths[each]))
    calls = (
        (line_of(row["user"]), length, count)
        for _, _, row, count in step_rows(recording)
        if _CALLS.search(row["user"].get("text", ""))
    )
    return longest(recording, calls)


def _awkward(nodes: BackwardNodeTimes) -> list[tuple[int, int]]:
    return [(length, ns) for length, ns in nodes.get("transforms", ()) if largest_factor(length) >= _FACTOR_MIN]


def largest_factor(number: int) -> int:
    """The largest prime factor."""
    largest, factor = 1, 2
    while factor * factor <= number:
        while number % factor == 0:
            largest, number = factor, number // factor
        factor += 1
    return max(largest, number)
