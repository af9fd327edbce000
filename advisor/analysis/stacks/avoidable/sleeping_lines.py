"""Finds the user's lines inside the step where the training thread sleeps, waiting for a server, a disk or a clock.

CPU clocks show how long it sleeps in forward, backward and optimizer, but not where. Two profiles show that: one of all samples, and one
without those that found the thread asleep. Sleep in torch itself (its threads, an exchange) does not count. A line that calls torch and
leaves no frame does not count either: other threads compute for it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rn50_advisor.advisor.analysis.stacks.avoidable.foreign_lines import OF_TORCH
from rn50_advisor.advisor.analysis.stacks.hot_lines import place
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    FETCH,
    LINE_SAMPLES_MIN,
    TORCH,
    CallPaths,
    CodeLine,
    SeenStack,
    call_paths,
    inner,
    line_of,
    place_of,
    profiles_by_rank,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.gpu_measures import GPU_HOST_PACED_S
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import STEP_ASLEEP_S, STEP_WAITING_S
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.probes.documents.event_documents import StackProfile

# Frames below these belong to the model: its forward, a hook of its backward pass, a closure of its optimizer.
_MODEL = ("/torch/nn/", "/torch/autograd/", "/torch/_tensor.py", "/torch/optim/")
# Calls that wait, by the names that the field gives them: they may be given a tensor.
_WAITS = re.compile(r"sleep|recv|request|urlopen|acquire|\b(?:get|read|wait|join|result|poll|query|execute)\w*\(")
_UPPER_BOUNDS = (STEP_ASLEEP_S, GPU_HOST_PACED_S)
_ASLEEP_SHARE_MIN = 0.5  # of a line's samples; a line that computes is found asleep only by chance


@dataclass(frozen=True, slots=True)
class _Asleep:
    """Samples of one user line: those that found the thread asleep there, and all."""

    asleep: int
    samples: int
    leaf: str


def waiting_values(recording: Recording, steady: Mapping[int, RankSteps], values: Measured) -> Measured:
    """Seconds per step that a rank sleeps in the user's lines inside the step.

    At most its total sleep there. On a GPU, where the host has to sleep, at most the time in which the GPU had nothing queued.
    """
    found = Measured()
    for rank, steps in steady.items():
        share = _share(recording, rank)
        most_s = next((values[name, rank] for name in _UPPER_BOUNDS if (name, rank) in values), None)
        if most_s is None:
            found.missing[STEP_WAITING_S, rank] = (
                values.why(STEP_ASLEEP_S, rank) or "the duration of the sleep is unknown"
            )
        elif share is not None:
            found[STEP_WAITING_S, rank] = min(most_s, share * steps.per_step_s)
        elif most_s > 0:
            found.missing[STEP_WAITING_S, rank] = (
                "no profile was taken: where the training thread sleeps was not observed"
            )
    return found


def waiting_lines(recording: Recording) -> tuple[HotLine, ...]:
    """The lines where ranks sleep inside the step, over all ranks, the longest first."""
    lines, samples = Counter[CodeLine](), 0
    leaves: dict[CodeLine, str] = {}
    for _, profile in _profiles(recording):
        samples += profile["looks"]
        for key, line in _lines(profile).items():
            lines[key] += line.asleep
            leaves[key] = line.leaf
    return tuple(HotLine(*key, leaves[key], n, n / samples, io=False) for key, n in lines.most_common(5))


def _share(recording: Recording, rank: int) -> float | None:
    """Share of a rank's stack samples that sleep in such a line; None if no profile can show it."""
    profiles = [profile for of, profile in _profiles(recording) if of == rank]
    samples = sum(profile["looks"] for profile in profiles)
    return (
        sum(line.asleep for p in profiles for line in _lines(p).values()) / samples
        if samples >= LINE_SAMPLES_MIN
        else None
    )


def _profiles(recording: Recording) -> Iterable[tuple[int, StackProfile]]:
    for rank, profile in profiles_by_rank(recording):
        if any("awake" in row for row in profile["stacks"]):
            yield rank, profile


def _lines(profile: StackProfile) -> dict[CodeLine, _Asleep]:
    rows = user_rows(profile)
    paths = call_paths(rows)
    found: dict[CodeLine, list[SeenStack]] = {}
    for row in rows:
        if _in_step(row, paths):
            user = row["user"]
            found.setdefault(line_of(user), []).append(row)
    lines = {key: _summed(rows) for key, rows in found.items()}
    return {key: line for key, line in lines.items() if line.asleep >= _ASLEEP_SHARE_MIN * line.samples}


def _summed(rows: list[SeenStack]) -> _Asleep:
    """The sum of a line's rows. The two profiles cover different seconds, and one stack may have more samples in the second."""
    samples = sum(row["count"] for row in rows)
    longest = max(rows, key=lambda row: row["count"] - row["awake"])
    return _Asleep(samples - sum(row["awake"] for row in rows), samples, place(longest["frames"][0]))


def _in_step(row: SeenStack, paths: CallPaths) -> bool:
    """True if the user's own line waits inside the model, or between the batch and its backward pass."""
    frames = inner(row["frames"])
    user = next(
        (n for n, f in enumerate(frames) if (f["file"], f["line"]) == (row["user"]["file"], row["user"]["line"])), None
    )
    files = [frame["file"] for frame in frames]
    if user is None or any(TORCH in file for file in files[:user]) or any(FETCH in file for file in files):
        return False
    text = row["user"].get("text", "")
    if user == 0 and OF_TORCH.search(text) and not _WAITS.search(text):
        return False
    if any(part in file for file in files[user:] for part in _MODEL):
        return True
    for frame in reversed(frames):
        line, last = frame["line"], max(paths.backwards.get(place_of(frame), ()), default=None)
        if last is not None and line != last:  # on the same line, the frame that it calls decides
            return min(paths.fetches.get(place_of(frame), ()), default=0) < line < last
    return False
