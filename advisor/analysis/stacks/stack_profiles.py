"""Finds the parts of a training thread's profile that lie between steps, and between a backward pass and the update.

A profile records no phases, but its stacks show them. Code inside torch (a loader, the model, backward, an optimizer) belongs to the step.
The line of the training loop that called into torch shows where the loop is: between its fetch and its backward it prepares the forward.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import lru_cache
from typing import TypedDict, cast

from rn50_advisor.advisor.model.recording import Recording, events_of
from rn50_advisor.probes.documents.code_places import StackFrame, UserLine
from rn50_advisor.probes.documents.event_documents import StackProfile
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

TORCH, FETCH = "/torch/", "/torch/utils/data/"
# Torch's wrappers around the user's own functions. They do not count as torch.
_DECORATORS = ("/torch/utils/_contextlib.py", "/torch/distributed/elastic/multiprocessing/errors/")
# Torch code whose time belongs to the user's line that calls it: tensor expressions, printing of tensors, a tracker.
_THIN = ("/torch/_tensor.py", "/torch/_tensor_str.py", "/torch/functional.py", "/torch/utils/tensorboard/")
# Iterators over a model's parts. The work on each part is the caller's.
_MODULE = "/torch/nn/modules/module.py"
_WALKS = frozenset(
    f"{prefix}{part}" for prefix in ("", "named_") for part in ("parameters", "buffers", "modules", "children")
) | {"_named_members"}
_BACKWARD = ("/torch/_tensor.py", "/torch/autograd/__init__.py")
_OPTIMIZERS, _SCHEDULERS, _SCALER = "/torch/optim/", "/torch/optim/lr_scheduler.py", "/torch/amp/grad_scaler.py"
_SAVE = "/torch/serialization.py"
_MODULES = "/torch/nn/"
_OF_A_STEP = (
    FETCH,
    _OPTIMIZERS,
    _SCALER,
    _SAVE,
    "/torch/autograd/",
    "/torch/distributed/",
    "/torch/nn/utils/clip_grad.py",
)
# A line that takes more than this many times the time between steps, as the phases give it, is not (only) between steps.
_OUTSIDE_RATIO_MAX = 2.0
_LINE_SHARE_MIN = 0.05  # of the samples; always allowed, because few samples scatter
_SAMPLES_MIN = 100  # samples; of 400, a backward pass has this many, a fetch usually far fewer

# Samples of profiles needed to measure how much of a step a line takes. With fewer, a twentieth of them is too few.
LINE_SAMPLES_MIN = 100

Frames = Sequence[StackFrame]
Place = tuple[str, str]  # file, function
CodeLine = tuple[str, int, str]  # file, number, function


def line_of(frame: StackFrame) -> CodeLine:
    return frame["file"], frame["line"], frame["function"]


class UsersStack(TypedDict):
    """A stack that includes one of the user's own lines."""

    frames: list[StackFrame]
    user: UserLine


class SeenStack(UsersStack, total=False):
    """A stack of a profile; see `ProfiledStack`."""

    count: int
    awake: int


@dataclass(frozen=True, slots=True)
class CallPaths:
    """Functions on the way to a fetch, a backward pass and an update, with their lines that lead there."""

    fetches: Mapping[Place, Set[int]]
    backwards: Mapping[Place, Set[int]]
    updates: Mapping[Place, Set[int]]


@dataclass(frozen=True, slots=True)
class AfterBackward:
    """The stacks of a profile after the last backward pass of their function, up to the update if it was seen."""

    rows: tuple[tuple[int, SeenStack], ...]  # (samples, stack)
    updates_seen: bool  # if False, `rows` includes stacks after the update
    loops: frozenset[Place]  # functions that start backward passes or call one that does


def between_steps(profile: StackProfile) -> Iterator[tuple[int, SeenStack]]:
    """Yields (samples, stack) for stacks in the user's own time between steps."""
    rows = user_rows(profile)
    loops, paths = _loops(rows), call_paths(rows)
    savers = _savers(rows, paths)
    most = max(_OUTSIDE_RATIO_MAX * (profile.get("outside_share") or 0.0), _LINE_SHARE_MIN) * profile["looks"]
    outside = [
        row
        for row in rows
        if (not inside_torch(row["frames"]) or after_update(row["frames"], paths))
        and not _before_backward(row["frames"], loops)
        and not any(place_of(frame) in savers for frame in inner(row["frames"]))
    ]
    of_line: dict[tuple[str, int], int] = {}
    for row in outside:
        of_line[_line(row)] = of_line.get(_line(row), 0) + row["count"]
    for row in outside:
        if of_line[_line(row)] <= most:
            yield row["count"], row


def savers_and_paths(profile: StackProfile) -> tuple[set[Place], CallPaths]:
    rows = user_rows(profile)
    paths = call_paths(rows)
    return _savers(rows, paths), paths


def after_saving(profile: StackProfile, savers: Set[Place]) -> Iterator[tuple[int, SeenStack]]:
    """Yields (samples, stack) for stacks in these functions but outside torch: it may have saved to memory, which they write to disk."""
    for row in user_rows(profile):
        frames = inner(row["frames"])
        in_torch = any(TORCH in frame["file"] for frame in frames)
        if not in_torch and any((frame["file"], called(frame)) in savers for frame in frames):
            yield row["count"], row


def profiles_by_rank(recording: Recording) -> Iterator[tuple[int, StackProfile]]:
    for event in events_of(recording.events, StackProfile):
        if event.rank is not None:
            yield event.rank, event.data


def user_rows(profile: StackProfile) -> list[SeenStack]:
    """Stacks with a frame of the user's code, by this advisor's judgement: another installation may have recorded them."""
    rows = (row for row in profile["stacks"] if row.get("user"))
    return [cast(SeenStack, row) for row in rows if any(_is_users(frame["file"]) for frame in row["frames"])]


def after_backward(profile: StackProfile) -> AfterBackward:
    rows = user_rows(profile)
    backwards = {place: max(lines) for place, lines in _lines_into(rows, starts_backward).items()}
    later = {
        place: [line for line in lines if line > backwards[place]]
        for place, lines in _lines_into(rows, _updates).items()
        if place in backwards
    }
    updates = {place: min(lines) for place, lines in later.items() if lines}
    found = []
    for row in rows:
        if any(FETCH in frame["file"] for frame in row["frames"]):
            continue  # an early fetch of the next batch
        loop = next((frame for frame in inner(row["frames"]) if place_of(frame) in backwards), None)
        if loop is None:
            continue
        place, line = place_of(loop), loop["line"]
        # if another function updates and this one does not, it is unknown when this one runs
        if backwards[place] < line < updates.get(place, 0 if updates else line + 1):
            found.append((row["count"], row))
    return AfterBackward(tuple(found), bool(updates), frozenset(backwards))


def _line(row: UsersStack) -> tuple[str, int]:
    return row["user"]["file"], row["user"]["line"]


def inner(frames: Frames) -> Frames:
    """Frames (innermost first) up to the user's outermost one. This leaves out the starter of the script (torchrun, a spawn)."""
    outermost = next((i for i in reversed(range(len(frames))) if _is_users(frames[i]["file"])), 0)
    return [f for f in frames[: outermost + 1] if not _decorates(f["file"])]


# Cached, because all frames are from the same few hundred files.
@lru_cache(maxsize=4096)
def _is_users(file: str) -> bool:
    return is_user_file(file)


@lru_cache(maxsize=4096)
def _decorates(file: str) -> bool:
    return any(part in file for part in _DECORATORS)


def inside_torch(frames: Frames) -> bool:
    return any(TORCH in frame["file"] and not _is_thin(frame) for frame in inner(frames))


def _is_thin(frame: StackFrame) -> bool:
    file = frame["file"]
    return any(part in file for part in _THIN) or (file.endswith(_MODULE) and called(frame) in _WALKS)


def in_forward(frames: Frames) -> bool:
    """True inside a module, unless a backward pass recomputes it."""
    files = [frame["file"] for frame in inner(frames)]
    return any(_MODULES in file for file in files) and not any(part in file for file in files for part in _OF_A_STEP)


def called(frame: StackFrame) -> str:
    """The function's own name, without the class that Python 3.11 and later prefix."""
    return frame["function"].rpartition(".")[2]


def place_of(frame: StackFrame) -> Place:
    return frame["file"], frame["function"]


def _calls(rows: Sequence[SeenStack]) -> Iterator[tuple[StackFrame, Frames]]:
    """Yields (torch's outermost frame, its callers, innermost first) for every stack that enters torch."""
    for row in rows:
        frames = inner(row["frames"])
        into = max((i for i, frame in enumerate(frames) if TORCH in frame["file"]), default=-1)
        if 0 <= into < len(frames) - 1:
            yield frames[into], frames[into + 1 :]


def starts_backward(frame: StackFrame) -> bool:
    return called(frame) == "backward" and frame["file"].endswith(_BACKWARD)


def _updates(frame: StackFrame) -> bool:
    """True for a step of an optimizer, as torch or a scheduler wraps it, or of a gradient scaler. A scheduler's own step does not count."""
    file, function = frame["file"], called(frame)
    if file.endswith((_SCALER, _SCHEDULERS)):
        return function == ("step" if file.endswith(_SCALER) else "wrapper")
    return _OPTIMIZERS in file and function in ("step", "wrapper")


def _savers(rows: Sequence[SeenStack], paths: CallPaths) -> set[Place]:
    """Functions that save without training. All of their time is checkpointing, which is reported elsewhere."""
    return {
        place_of(callers[0]) for callee, callers in _calls(rows) if _SAVE in callee["file"]
    } - paths.backwards.keys()


def _loops(rows: Sequence[SeenStack]) -> dict[Place, tuple[int, int]]:
    """Functions that both fetch batches and start backward passes, with the first fetching and the last backward line."""
    fetches = {place: min(lines) for place, lines in _lines_into(rows, _fetches, 1).items()}
    backwards = {place: max(lines) for place, lines in _lines_into(rows, starts_backward, 1).items()}
    return {place: (fetches[place], line) for place, line in backwards.items() if fetches.get(place, line) < line}


def _lines_into(
    rows: Iterable[SeenStack], is_one: Callable[[StackFrame], bool], callers_up: int | None = None
) -> dict[Place, frozenset[int]]:
    """Functions that lead to calls into torch that match `is_one`, with the lines. `callers_up` limits the number of callers per stack."""
    seen = Counter[tuple[Place, int]]()
    for row in rows:
        for callee, callers in _calls([row]):
            for caller in callers[:callers_up] if is_one(callee) else ():
                seen[place_of(caller), caller["line"]] += row["count"]
    return _lines_by_place(seen)


def call_paths(rows: Iterable[SeenStack]) -> CallPaths:
    """Functions that lead to fetches, backward passes and updates, including callers: a loop may split its parts into functions."""
    rows = list(rows)
    return CallPaths(*(lines_to(rows, is_one) for is_one in (_fetches, starts_backward, _updates)))


def lines_to(rows: Iterable[SeenStack], is_one: Callable[[StackFrame], bool]) -> dict[Place, frozenset[int]]:
    """Functions on the way to the outermost frame that matches `is_one`, with their lines that lead there."""
    seen = Counter[tuple[Place, int]]()
    for row in rows:
        frames = inner(row["frames"])
        into = max((n for n, frame in enumerate(frames) if is_one(frame)), default=len(frames))
        for frame in frames[into + 1 :]:
            seen[place_of(frame), frame["line"]] += row["count"]
    return _lines_by_place(seen)


def _fetches(frame: StackFrame) -> bool:
    return FETCH in frame["file"]


def _lines_by_place(seen: Mapping[tuple[Place, int], int]) -> dict[Place, frozenset[int]]:
    """Lines by function, without lines that have hardly any of their function's samples: a stack read while the thread runs may be torn."""
    of_place = Counter[Place]()
    for (place, _), count in seen.items():
        of_place[place] += count
    # with many samples, stacks of a function that has hardly any are taken to be torn as well
    least = _LINE_SHARE_MIN * max(of_place.values(), default=0) if sum(seen.values()) >= _SAMPLES_MIN else 0.0
    found: dict[Place, frozenset[int]] = {}
    for (place, line), count in seen.items():
        if count >= max(least, _LINE_SHARE_MIN * of_place[place]):
            found[place] = found.get(place, frozenset()) | {line}
    return found


def after_update(frames: Frames, paths: CallPaths) -> bool:
    """True if a training function has done its update and continues with something other than another part of the step.

    The model and other torch code found there are an evaluation that no loader feeds.
    """
    called_by = inner(frames)
    if any(part in frame["file"] for frame in called_by for part in _OF_A_STEP):
        return False
    for n in reversed(range(len(called_by))):
        place, line = place_of(called_by[n]), called_by[n]["line"]
        backward = max(paths.backwards.get(place, ()), default=None)
        later = [at for at in paths.updates.get(place, ()) if at >= (backward or 0)]
        # an update may be too short to be sampled: it is then assumed to follow its backward pass at once
        update = min(later, default=None if paths.updates else backward)
        if update is None or line < update:
            return False
        if line > update:
            # a fetch here or in a called function is an evaluation, which is labelled as such
            fed = any(update < at <= line for at in paths.fetches.get(place, ()))
            return not fed and not any(place_of(frame) in paths.fetches for frame in called_by[:n])
    return False


def _before_backward(frames: Frames, loops: Mapping[Place, tuple[int, int]]) -> bool:
    for frame in inner(frames):
        lines = loops.get(place_of(frame))
        if lines is not None:
            return lines[0] < frame["line"] <= lines[1]
    return False
