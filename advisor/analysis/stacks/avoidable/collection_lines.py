"""Finds lines of the training loop that go through a whole collection in every step, though the step needs little of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.host.node_window import ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.after_update import evaluation_lines
from rn50_advisor.advisor.analysis.stacks.hot_lines import place
from rn50_advisor.advisor.analysis.stacks.loop_lines import profiled_values, samples_by_rank, working_rows
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    CodeLine,
    SeenStack,
    line_of,
    profiles_by_rank,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_COLLECTION_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.code_places import CollectionCall


def collection_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step of each rank with a profile. On a GPU, at most the time in which the GPU had nothing queued."""
    return profiled_values(recording, steady, values, STEP_COLLECTION_S, samples_by_rank(_through(recording)))


def collection_lines(recording: Recording) -> tuple[HotLine, ...]:
    """These lines over all ranks, the longest first."""
    samples = sum(profile["looks"] for _, profile in profiles_by_rank(recording))
    lines = Counter[CodeLine]()
    known: dict[CodeLine, tuple[str, CollectionCall]] = {}
    for _, row, call, count in _through(recording):
        key = line_of(row["user"])
        lines[key] += count
        known.setdefault(key, (place(row["frames"][0]), call))
    return tuple(
        HotLine(*key, known[key][0], n, n / samples, io=False, collection=known[key][1])
        for key, n in lines.most_common(5)
    )


def _through(recording: Recording) -> Iterator[tuple[int, SeenStack, CollectionCall, int]]:
    """Yields (rank, stack, call, number of samples that found it awake). Items of a data set and evaluations are reported elsewhere."""
    on_gpu, evaluations = ranks_on_gpus(recording), evaluation_lines(recording)
    for rank, profile in profiles_by_rank(recording):
        for row, count in working_rows(user_rows(profile), evaluations, on_gpu=rank in on_gpu):
            if call := row["user"].get("collection"):
                yield rank, row, call, count
