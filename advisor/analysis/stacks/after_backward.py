"""Finds avoidable work between the backward pass and the update: output, waiting, inspection of gradients.

Clipping and unscaling gradients, averaging them over ranks and waiting for that are part of the update. Torch, a trainer library or the
user's own in-place code does them. Marks cannot separate them from other code there, but stacks can. The share of stack samples outside of
them is the user's avoidable share of the time between backward and update.
"""

from __future__ import annotations

import itertools
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    Place,
    SeenStack,
    UsersStack,
    after_backward,
    inside_torch,
)
from rn50_advisor.advisor.analysis.steps.phases import BEFORE_UPDATE, events_read
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.recording import Recording, data_of
from rn50_advisor.probes.documents.event_documents import KnownStack, StackProfile, StackSample
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

Row = KnownStack | SeenStack
Line = tuple[str, int]  # file, number

_SAMPLES_MIN = 3  # stack samples; fewer are chance
# Libraries whose own code changes or exchanges gradients.
_TRAINERS = re.compile(
    r"/(timm|accelerate|(pytorch_)?lightning(_fabric)?|transformers|deepspeed|apex|opacus|horovod|fairscale|colossalai|megatron|composer|fastai)/"
)
_EXCHANGE, _NEAR = (
    "/torch/distributed/distributed_c10d.py",
    4,
)  # frames above the call of a collective, wrappers included
# In-place functions by torch's naming and assignments to gradients; and in-place scaling.
CHANGES_TENSORS = r"[A-Za-z0-9]_\(|\.(?:grad|data)\s*[-+*/]?=(?!=)"
_IN_PLACE = re.compile(rf"{CHANGES_TENSORS}|[*/]=")


@dataclass(frozen=True, slots=True)
class _Sample:
    rank: int
    count: int
    row: Row
    exact: bool  # True if surely before the update; otherwise it may be after it


def users_own(recording: Recording) -> tuple[list[_Sample], list[_Sample]]:
    """Stack samples after the backward pass: (avoidable ones, all others)."""
    samples, loops = [], set[Place]()
    for event in recording.events:
        if event.rank is None:
            continue
        if (profile := data_of(event, StackProfile)) is not None:
            found = after_backward(profile)
            samples += [_Sample(event.rank, count, row, found.updates_seen) for count, row in found.rows]
            loops |= found.loops
        elif (single := data_of(event, StackSample)) and single.get("phase") == "clip" and single.get("step", 0) >= 1:
            samples.append(_Sample(event.rank, 1, single, exact=True))
    # in a function that averages or clips by hand, other code counts as part of that
    by_hand = {_place(sample.row) for sample in samples if works_in_place(sample.row) or _exchanges(sample.row)} - loops
    own, rest = list[_Sample](), list[_Sample]()
    for sample in samples:
        (own if _is_own(sample.row) and _place(sample.row) not in by_hand else rest).append(sample)
    return own, rest


def needed_lines(recording: Recording) -> frozenset[Line]:
    """The user's lines between backward and update that are needed there."""
    found = Counter[Line]()
    for samples, sign in zip(users_own(recording), (-1, 1), strict=True):
        for sample in samples:
            if sample.exact and (user := sample.row.get("user")):
                found[user["file"], user["line"]] += sign * sample.count
    return frozenset(line for line, count in found.items() if count > 0)


def with_own_work(recording: Recording, everything: Mapping[int, RankSteps]) -> dict[int, RankSteps]:
    """The same steps, with a column for the seconds of avoidable user code between backward and update, where there is any."""
    own, rest = users_own(recording)
    processes = process_by_rank(recording.processes)
    found = {}
    for rank, steps in everything.items():
        clip_s, gap_s = float(steps.columns["clip"].sum()), float(steps.columns["gap"].sum())
        share = _share([x for x in own if x.rank == rank], [x for x in rest if x.rank == rank], clip_s, gap_s)
        if share is None:
            share = _share(own, rest, clip_s, gap_s)
        facts = recording.facts.get(processes[rank].pid, {}) if rank in processes else {}
        if facts.get("cuda") and not events_read(steps, recording.gpu_steps.get(rank)):
            share = None  # a line that waits for the GPU's backward pass looks the same
        column = {BEFORE_UPDATE: share * steps.columns["clip"]} if share else {}
        found[rank] = replace(steps, columns={**steps.columns, **column})
    return found


def _share(own: Iterable[_Sample], rest: Iterable[_Sample], clip_s: float, gap_s: float) -> float | None:
    """Avoidable share of the time between backward and update; None with too few stack samples.

    If it is unknown which samples came after the update, as many as needed are taken to have come before it.
    """
    for exact, among_s in ((True, clip_s), (False, clip_s + gap_s)):
        own_count, others = (
            sum(sample.count for sample in samples if sample.exact is exact) for samples in (own, rest)
        )
        if own_count + others >= _SAMPLES_MIN and clip_s > 0:
            return max(0.0, 1.0 - others / (own_count + others) * among_s / clip_s)
    return None


def _is_own(row: Row) -> bool:
    frames = row["frames"]
    if not row.get("user") or not frames or inside_torch(frames) or works_in_place(row):
        return False
    called = itertools.takewhile(lambda file: not is_user_file(file), (frame["file"] for frame in frames))
    return not any(_TRAINERS.search(file) for file in called)


def works_in_place(row: Row | UsersStack) -> bool:
    user = row.get("user")
    return user is not None and bool(_IN_PLACE.search(user.get("text", "")))


def _exchanges(row: Row) -> bool:
    return any(_EXCHANGE in frame["file"] for frame in row["frames"][:_NEAR])


def _place(row: Row) -> Place:
    user = row.get("user")
    return (user["file"], user["function"]) if user else ("", "")
