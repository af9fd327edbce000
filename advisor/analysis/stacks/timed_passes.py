"""Backward passes on CPUs that recorders timed node by node, and the frames of stacks that belong to none."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from rn50_advisor.advisor.analysis.host.node_window import facts_by_rank
from rn50_advisor.advisor.analysis.stacks.stack_profiles import Frames, SeenStack, inner, starts_backward
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.model_documents import BackwardNodeTimes
from rn50_advisor.probes.documents.rank_documents import RankFacts

NOT_TIMED = "no backward pass was timed node by node"


def timed_passes(
    recording: Recording, steady: Mapping[int, RankSteps]
) -> Iterator[tuple[int, BackwardNodeTimes | None, float]]:
    """Yields (rank, its timed passes, seconds per step for each of their ns); (rank, None, 0.0) where none was timed."""
    known = facts_by_rank(recording)
    for rank, steps in steady.items():
        timed, backward_s = known.get(rank, RankFacts()).get("backward_nodes"), steps.per_step("backward")
        if timed is None or not timed["ns"] or backward_s is None:
            yield rank, None, 0.0
        else:
            yield rank, timed, backward_s / timed["ns"]


def every_timed_pass(recording: Recording) -> list[BackwardNodeTimes]:
    """Those of all processes; none where nobody looked, as on GPUs."""
    return [nodes for facts in recording.facts.values() if (nodes := facts.get("backward_nodes")) is not None]


def before_backward(row: SeenStack) -> Frames:
    """The frames up to the user's outermost one; none of a backward pass."""
    frames = inner(row["frames"])
    return () if any(starts_backward(frame) for frame in frames) else frames
