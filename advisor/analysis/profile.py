"""What of a profile of the training thread lies between steps.

A profile knows no phases, but its stacks tell: what runs inside torch (a loader, the model, backward, an optimizer) is the step's. And the
line of the training loop that called into torch tells where the loop is: between its fetch and its backward it prepares the forward pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from probes.host.stacks import is_user_file

_TORCH = "/torch/"
_FETCH, _BACKWARD = "/torch/utils/data/", ("/torch/_tensor.py", "/torch/autograd/")
_SAVE = "/torch/serialization.py"
# A line with more than this many times what the phases say of time between steps is not, or not only, between them.
_TOO_MUCH = 2.0
_LEAST_SHARE = 0.05  # of the looks, allowed in any case: few looks scatter

Frames = Sequence[Mapping[str, Any]]
Place = tuple[str, str]  # file, function


def between_steps(profile: Mapping[str, Any]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(looks, stack) of those stacks that end in the user's own time between steps."""
    rows = [row for row in profile.get("stacks") or () if row.get("user") and row.get("frames")]
    loops, savers = _loops(rows), _savers(rows)
    most = max(_TOO_MUCH * float(profile.get("outside_share") or 0.0), _LEAST_SHARE) * int(profile.get("looks") or 0)
    outside = [
        row
        for row in rows
        if not _inside_torch(row["frames"])
        and not _before_backward(row["frames"], loops)
        and not any(_place(frame) in savers for frame in _inner(row["frames"]))
    ]
    of_line: dict[tuple[str, int], int] = {}
    for row in outside:
        of_line[_line(row)] = of_line.get(_line(row), 0) + int(row["count"])
    for row in outside:
        if of_line[_line(row)] <= most:
            yield int(row["count"]), row


def _line(row: Mapping[str, Any]) -> tuple[str, int]:
    return str(row["user"]["file"]), int(row["user"]["line"])


def _inner(frames: Frames) -> Frames:
    """Frames (innermost first) below the outermost of the user's: what started the script, torchrun or a spawn, is left out."""
    outermost = max((i for i, frame in enumerate(frames) if is_user_file(str(frame["file"]))), default=0)
    return frames[: outermost + 1]


def _inside_torch(frames: Frames) -> bool:
    return any(_TORCH in str(frame["file"]) for frame in _inner(frames))


def _place(frame: Mapping[str, Any]) -> Place:
    return str(frame["file"]), str(frame["function"])


def _calls(rows: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, Place, int]]:
    """(file of torch, who called it, at which line) of every stack that goes into torch."""
    for row in rows:
        inner = _inner(row["frames"])
        into = max((i for i, frame in enumerate(inner) if _TORCH in str(frame["file"])), default=-1)
        if 0 <= into < len(inner) - 1:
            yield str(inner[into]["file"]), _place(inner[into + 1]), int(inner[into + 1]["line"])


def _savers(rows: Sequence[Mapping[str, Any]]) -> set[Place]:
    """Functions that save and do not train as well: all of their time is a checkpoint's, which is told elsewhere."""
    savers, trainers = set(), set()
    for file, place, _ in _calls(rows):
        if _SAVE in file:
            savers.add(place)
        elif _FETCH in file or any(part in file for part in _BACKWARD):
            trainers.add(place)
    return savers - trainers


def _loops(rows: Sequence[Mapping[str, Any]]) -> dict[Place, tuple[int, int]]:
    """Of every function that both fetches batches and starts backward passes: first line of the one, last line of the other."""
    fetches: dict[Place, int] = {}
    backwards: dict[Place, int] = {}
    for file, place, line in _calls(rows):
        if _FETCH in file:
            fetches[place] = min(line, fetches.get(place, line))
        elif any(part in file for part in _BACKWARD):
            backwards[place] = max(line, backwards.get(place, line))
    return {place: (fetches[place], line) for place, line in backwards.items() if fetches.get(place, line) < line}


def _before_backward(frames: Frames, loops: Mapping[Place, tuple[int, int]]) -> bool:
    for frame in _inner(frames):
        lines = loops.get(_place(frame))
        if lines is not None:
            return lines[0] < int(frame["line"]) <= lines[1]
    return False
