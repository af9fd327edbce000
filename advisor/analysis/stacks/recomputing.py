"""Measures recomputation by activation checkpointing and finds the lines that request it, from stack samples of the training thread.

On a GPU the backward pass runs in a thread of autograd, so only the lines are found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from rn50_advisor.advisor.analysis.host.node_window import ranks_on_gpus
from rn50_advisor.advisor.analysis.stacks.stack_profiles import LINE_SAMPLES_MIN, Frames, profiles_by_rank, user_rows
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_RECOMPUTING_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_CHECKPOINT = "/torch/utils/checkpoint.py"
_AUTOGRAD = "/torch/autograd/"


def recomputing_values(recording: Recording, steady: Mapping[int, RankSteps]) -> Measured:
    """Seconds per step in which the backward pass recomputes a forward pass; absent if the samples cannot show it."""
    found, on_gpus = Measured(), ranks_on_gpus(recording)
    for rank, steps in steady.items():
        profiles = [profile for of, profile in profiles_by_rank(recording) if of == rank]
        samples = sum(profile["looks"] for profile in profiles)
        if samples < LINE_SAMPLES_MIN or rank in on_gpus:
            continue
        again = sum(row["count"] for profile in profiles for row in user_rows(profile) if _again(row["frames"]))
        found[STEP_RECOMPUTING_S, rank] = min(steps.per_step("backward"), again / samples * steps.per_step_s)
    return found


def recomputing_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The user's lines whose forward pass is checkpointed, the most frequent first."""
    lines, samples = Counter[tuple[str, int, str]](), 0
    for _, profile in profiles_by_rank(recording):
        samples += profile["looks"]
        for row in user_rows(profile):
            if (frame := _asks(row["frames"])) is not None:
                lines[frame["file"], frame["line"], frame["function"]] += row["count"]
    return tuple(HotLine(*key, "", n, n / samples, io=False) for key, n in lines.most_common(5))


def _again(frames: Frames) -> bool:
    """True for a checkpointed forward pass that runs inside a backward pass."""
    return any(_AUTOGRAD in frame["file"] for frame in _around_checkpoint(frames))


def _asks(frames: Frames) -> StackFrame | None:
    """The user's line that called the checkpointed forward pass."""
    if _again(frames):
        return None
    return next((frame for frame in _around_checkpoint(frames) if is_user_file(frame["file"])), None)


def _around_checkpoint(frames: Frames) -> Frames:
    """The frames that led to a checkpointed forward pass, innermost first; empty if the stack is in none."""
    at = max((n for n, frame in enumerate(frames) if frame["file"].endswith(_CHECKPOINT)), default=len(frames))
    return frames[at + 1 :]
