"""Separates the time right after the update from the rest up to the next backward pass, in loops that no torch loader feeds.

Without a loader no mark ends the time after the update. The recorder sees one chunk: logging, a pause or an evaluation, then the next batch
and the forward. A profile's stacks separate these by the lines of the function that trains. Ranks on a GPU are left out: a line that waits
for the GPU looks the same.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from rn50_advisor.advisor.analysis.host.node_window import process_by_rank
from rn50_advisor.advisor.analysis.stacks.after_backward import Line, works_in_place
from rn50_advisor.advisor.analysis.stacks.loss_lines import ENVIRONMENT, computes_loss, model_lines
from rn50_advisor.advisor.analysis.stacks.source.loop_source import (
    in_every_round,
    is_passed_on,
    is_trained_on,
    loop_apart,
    loops_around,
    once_a_round,
)
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    LINE_SAMPLES_MIN,
    TORCH,
    CallPaths,
    Frames,
    Place,
    UsersStack,
    after_update,
    call_paths,
    called,
    in_forward,
    inner,
    place_of,
    starts_backward,
    user_rows,
)
from rn50_advisor.advisor.analysis.steps.phases import AFTER_UPDATE, IN_MODEL
from rn50_advisor.advisor.analysis.steps.steady_state import RankSteps
from rn50_advisor.advisor.model.changes import PeriodicCall
from rn50_advisor.advisor.model.recording import AnyEvent, Recording, events_of
from rn50_advisor.probes.documents.event_documents import StackProfile
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_Beside = tuple[Place, int]  # a training function and a line of it
_NEAR = 0.4  # relative deviation from the stalls' share of the time; a profile samples some steps more than others
# What runs between series of steps is taken for the stall from this part of its time on: of very short calls many samples are torn.
_SEEN_MIN = 0.3
_MODULES = "/torch/nn/"
_PLAYING_MIN = 0.05  # of a call's samples


def with_own_loop(recording: Recording, everything: Mapping[int, RankSteps]) -> dict[int, RankSteps]:
    """The same steps. Ranks without a loader get columns for the time after the update and in the model, if a profile shows it."""
    processes = process_by_rank(recording.processes)
    found = dict(everything)
    for rank, steps in everything.items():
        facts = recording.facts.get(processes[rank].pid, {}) if rank in processes else {}
        shares = None if steps.fed or facts.get("cuda") else _shares(recording, steps)
        if shares is not None:
            after, model = (share * float(steps.length.sum()) for share in shares)
            column = _spread(steps, after)
            left = steps.columns["forward"] - column
            columns = {AFTER_UPDATE: column, IN_MODEL: left * min(1.0, model / max(float(left.sum()), 1e-12))}
            found[rank] = replace(steps, columns={**steps.columns, **columns})
    return found


def loop_paths(recording: Recording, ranks: Iterable[int]) -> dict[int, CallPaths]:
    """Call paths to fetches, backward passes and updates by rank; only ranks whose profile shows their loop."""
    found = {}
    for rank in ranks:
        paths = call_paths([row for profile in _profiles(recording.events, rank) for row in user_rows(profile)])
        if paths.backwards:
            found[rank] = paths
    return found


def evaluation_lines(recording: Recording) -> frozenset[Line]:
    """Lines that call an evaluation that the recorder saw. Its time is labelled and not part of the chunk."""
    sites = (site for facts in recording.facts.values() for site in facts.get("evaluation_sites", ()))
    return frozenset((site["file"], site["line"]) for site in sites)


def evaluates(row: UsersStack, evaluations: Set[Line]) -> bool:
    return any((frame["file"], frame["line"]) in evaluations for frame in row["frames"])


def after_own_update(row: UsersStack, paths: CallPaths) -> bool:
    """Like `after_update`. If no optimizer was seen, lines that work in place are taken to be the update."""
    return after_update(row["frames"], paths) and bool(paths.updates or not works_in_place(row))


def _shares(recording: Recording, steps: RankSteps) -> tuple[float, float] | None:
    """Shares of a rank's stack samples after its update and in its model's forward; None if no profile shows where its loop is."""
    paths = loop_paths(recording, [steps.rank]).get(steps.rank)
    profiles = _profiles(recording.events, steps.rank)
    samples = sum(profile["looks"] for profile in profiles)
    if paths is None or samples < LINE_SAMPLES_MIN:
        return None
    evaluations = evaluation_lines(recording)
    after = model = 0
    rows = [row for profile in profiles for row in user_rows(profile) if not evaluates(row, evaluations)]
    lines = model_lines(row["frames"] for row in rows)
    for row in rows:
        if after_own_update(row, paths):
            after += row["count"]
        elif in_forward(row["frames"]) or computes_loss(row["frames"], lines, recording.sources):
            model += row["count"]
    # if the update was not seen, the samples before it are included
    before = 0.0 if paths.updates else float(steps.columns["clip"].sum() / steps.length.sum())
    return max(0.0, after / samples - before), model / samples


def periodic_call(recording: Recording, rank: int, share: float) -> PeriodicCall | None:
    """The line of this rank's loop that takes about `share` of its time, leads to no part of the step and does not run in every step; else
    the longest of the lines that run between series of steps, if these together take it and no other line runs seldom.

    None if no line or several lines are like this. Without the loop's source any line may run seldom.
    """
    paths = loop_paths(recording, [rank]).get(rank)
    profiles = _profiles(recording.events, rank)
    samples = sum(profile["looks"] for profile in profiles)
    if paths is None or samples < LINE_SAMPLES_MIN:
        return None
    rows = [row for profile in profiles for row in user_rows(profile)]
    found, inside, playing = Counter[_Beside](), Counter[_Beside](), Counter[_Beside]()
    lines: dict[_Beside, Counter[int]] = {}
    callees: dict[_Beside, str] = {}
    trains = training_callees(rows)
    for row in rows:
        beside = _beside_the_step(row["frames"], paths, trains)
        if beside is not None:
            (place, line), below = beside
            callee = called(below[-1]) if below and is_user_file(below[-1]["file"]) else ""
            # the call itself has samples without its callee
            callees[place, line] = callees.get((place, line)) or callee
            # a rollout written out in the training loop is a loop of its own, whose lines belong together
            at = place, loop_apart(recording.sources, place[0], line, paths.backwards[place]) or line
            lines.setdefault(at, Counter())[line] += row["count"]
            found[at] += row["count"]
            inside[at] += row["count"] * in_forward(row["frames"])
            playing[at] += row["count"] * _plays(below)
    steps = _round_of_steps(recording, rows, paths)
    seldom = [at for at in found if not _in_every_step(recording, at, steps, paths)]
    group = [at for at in seldom if abs(found[at] / samples - share) <= _NEAR * share]
    if len(group) != 1:
        group = [at for at in seldom if _between_series(recording, at, steps, paths)]
        seen = sum(found[at] for at in group) / samples
        if not group or len(group) < len(seldom) or not _SEEN_MIN * share <= seen <= (1.0 + _NEAR) * share:
            return None
    place, count = group[0][0], sum(found[at] for at in group)
    of_group = Counter[int]()
    for at in group:
        of_group.update(lines[at])
    [(line, _)] = of_group.most_common(1)
    called_there = callees[place, line]
    learners = {function for _, function in trains.get((place, line), ())}
    collects = (
        sum(playing[at] for at in group) >= _PLAYING_MIN * count
        or any(is_trained_on(recording.sources, place[0], one, paths.backwards[place]) for one in of_group)
        or is_passed_on(recording.sources, place[0], line, called_there, learners)
    )
    in_model = sum(inside[at] for at in group)
    return PeriodicCall(place[0], line, called_there, count / samples, in_model / count, collects)


def _plays(below: Frames) -> bool:
    """True in a step of an environment: its method has this name in gymnasium, its forks and what imitates it."""
    names = {called(frame) for frame in below if TORCH not in frame["file"]}
    return bool(names.intersection(ENVIRONMENT)) and not any(_MODULES in frame["file"] for frame in below)


def _round_of_steps(recording: Recording, rows: Iterable[UsersStack], paths: CallPaths) -> tuple[Place, ...]:
    """The function whose loop makes the steps, last, after those that it calls on the way to the backward pass; empty if unknown."""
    for row in rows:
        frames = inner(row["frames"])
        into = max((n for n, frame in enumerate(frames) if starts_backward(frame)), default=len(frames))
        way = [place_of(frame) for frame in frames[into + 1 :]]
        for n, place in enumerate(way):
            if place in paths.backwards and loops_around(recording.sources, place[0], paths.backwards[place]):
                return tuple(way[: n + 1])
    return ()


def _in_every_step(recording: Recording, at: _Beside, steps: Sequence[Place], paths: CallPaths) -> bool:
    place, line = at
    if place not in steps:
        return False
    return place != steps[-1] or in_every_round(recording.sources, place[0], line, paths.backwards[place])


def _between_series(recording: Recording, at: _Beside, steps: Sequence[Place], paths: CallPaths) -> bool:
    place, line = at
    return steps[-1:] == (place,) and once_a_round(recording.sources, place[0], line, paths.backwards[place])


def training_callees(rows: Iterable[UsersStack]) -> dict[_Beside, set[Place]]:
    """What each line calls on the way to a backward pass."""
    found: dict[_Beside, set[Place]] = {}
    for row in rows:
        frames = inner(row["frames"])
        into = max((n for n, frame in enumerate(frames) if starts_backward(frame)), default=len(frames))
        for frame, callee in zip(frames[into + 1 :], frames[into:], strict=False):
            found.setdefault((place_of(frame), frame["line"]), set()).add(place_of(callee))
    return found


def calls_another(frames: Frames, n: int, trains: Mapping[_Beside, Set[Place]]) -> bool:
    """True if the line of `frames[n]` leads to a backward pass by one function of the user's, and these frames are in another.

    An example is `update(collect())`.
    """
    callees = trains.get((place_of(frames[n]), frames[n]["line"]), set())
    if n == 0 or not callees or not all(is_user_file(file) for file, _ in callees):
        return False
    return is_user_file(frames[n - 1]["file"]) and place_of(frames[n - 1]) not in callees


def _beside_the_step(
    frames: Frames, paths: CallPaths, trains: Mapping[_Beside, Set[Place]]
) -> tuple[_Beside, Frames] | None:
    """(the line of the innermost training function, the frames that it calls), unless it leads to the backward pass or update.

    A line may call both, one after the other: `update(collect())`.
    """
    called_by = inner(frames)
    for n in reversed(range(len(called_by))):
        place, line = place_of(called_by[n]), called_by[n]["line"]
        if place not in paths.backwards:
            return None
        if line not in paths.backwards[place]:
            if line in paths.updates.get(place, ()):
                return None
            return (place, line), called_by[:n]
        if calls_another(called_by, n, trains) and place_of(called_by[n - 1]) not in {*paths.updates, *paths.backwards}:
            return (place, line), called_by[:n]
    return None


def _profiles(events: Iterable[AnyEvent], rank: int) -> list[StackProfile]:
    return [event.data for event in events_of(events, StackProfile) if event.rank == rank]


def _spread(steps: RankSteps, seconds: float) -> NDArray[np.float64]:
    """Distributes seconds over the chunks of all steps, first to time beyond the usual chunk, which is neither input nor forward."""
    chunk = steps.columns["forward"]
    seconds = min(seconds, float(chunk.sum()))
    beyond = np.maximum(0.0, chunk - float(np.median(chunk / steps.count)) * steps.count)
    taken = beyond * min(1.0, seconds / max(float(beyond.sum()), 1e-12))
    rest = chunk - taken
    return np.asarray(taken + rest * (seconds - float(taken.sum())) / max(float(rest.sum()), 1e-12), np.float64)
