"""The lines of code that stack samples found between steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from itertools import chain
from typing import cast

from rn50_advisor.advisor.analysis.stacks.after_backward import needed_lines
from rn50_advisor.advisor.analysis.stacks.after_update import (
    after_own_update,
    evaluates,
    evaluation_lines,
    loop_paths,
)
from rn50_advisor.advisor.analysis.stacks.source.loop_source import tensor_loop
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    CodeLine,
    Frames,
    Place,
    UsersStack,
    after_saving,
    between_steps,
    called,
    inner,
    line_of,
    place_of,
    savers_and_paths,
    user_rows,
)
from rn50_advisor.advisor.model.analysis import HotLine
from rn50_advisor.advisor.model.measures.measure import JOB
from rn50_advisor.advisor.model.measures.measured import Measured
from rn50_advisor.advisor.model.measures.step_measures import GAP_IO_SHARE, GAP_SAVE_SHARE
from rn50_advisor.advisor.model.recording import Recording, data_of, events_of
from rn50_advisor.probes.documents.code_places import StackFrame
from rn50_advisor.probes.documents.event_documents import StackProfile, StackSample
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

# Files whose frames count as output: loggers, trackers and writers.
_OUTPUT_FILES = (
    "/logging/", "tensorboard", "/wandb/", "/mlflow/", "/csv.py", "/json/", "/pickle", "tqdm", "/rich/", "/comet_ml/", "/clearml/",
    "/neptune/", "loguru",
)  # fmt: skip
# In these modules `log` is a logarithm and `info` reads a file's header. `log` or `info` without arguments does not count as output either.
_MATHS = (
    "np", "numpy", "jnp", "cp", "cupy", "xp", "torch", "special", "F", "math", "cmath", "emath", "tf", "lax", "sympy",
    "torchaudio", "soundfile", "sf",
)  # fmt: skip
_OUTPUT_LINE = re.compile(
    r"\b(print|write|writelines|writerow|flush|fsync|savetxt|to_csv|log_metrics?|add_scalars?|debug|warning|dump)\s*\("
    r"|" + "".join(rf"(?<!\b{name})" for name in _MATHS) + r"\.(log|info)\s*\((?!\s*\))"
)
_COLLECTOR_LINE = re.compile(r"\bgc\.collect\(")
_OUTPUT_FUNCTIONS = frozenset(
    ("print", "write", "writelines", "flush", "fsync", "emit", "writerow", "dump", "add_scalar", "savetxt")
)


def outside_values(lines: Sequence[HotLine], saving_share: float) -> Measured:
    """Measures from stack samples between steps; empty if there were none. Takes both results of `hot_lines`."""
    found = Measured()
    if lines or saving_share:
        found[GAP_IO_SHARE, JOB] = sum(line.share for line in lines if line.io)
        found[GAP_SAVE_SHARE, JOB] = saving_share
    return found


def hot_lines(recording: Recording, without_loader: Iterable[int] = ()) -> tuple[tuple[HotLine, ...], float]:
    """Lines of user code most often sampled between steps, most frequent first, and the share of these samples in a checkpoint.

    Evaluation and saving by torch are labelled elsewhere, but a job that saves to memory still has to write it.

    Single samples come with a known phase; from profiles, the samples that `between_steps` yields count. Lines that are needed between
    backward and update are left out.
    """
    found: Counter[CodeLine] = Counter()
    savers, trainers = _saving_and_training_functions(recording)
    leaves: dict[CodeLine, str] = {}
    callers: dict[CodeLine, Counter[str]] = {}
    outputs: Counter[CodeLine] = Counter()
    collectors = set[CodeLine]()
    needed = needed_lines(recording)
    saving = 0
    for count, row in _samples(recording, savers, without_loader):
        if _saves(row, savers):
            saving += count
            continue
        user, frames = row["user"], row["frames"]
        key = line_of(user)
        if key[:2] in needed:
            continue
        found[key] += count
        if writes_output(row):
            outputs[key] += count
        if _COLLECTOR_LINE.search(user.get("text", "")):
            collectors.add(key)
        if frames:
            leaves[key] = place(frames[0])
        callers.setdefault(key, Counter())[_called_at(frames, trainers)] += count
    total = sum(found.values()) + saving
    lines = tuple(
        HotLine(
            file,
            line,
            function,
            leaves.get((file, line, function), ""),
            n,
            n / total,
            outputs[file, line, function] > n / 2,
            (file, line, function) in collectors,
            each_tensor=tensor_loop(recording.sources, file, line),
            called_at=callers[file, line, function].most_common(1)[0][0],
        )
        for (file, line, function), n in found.most_common(20)
    )
    return lines, saving / max(total, 1)


def _called_at(frames: Frames, trainers: Set[Place]) -> str:
    """`file:line` in the innermost function that trains; empty if the user's own line is there, or if no such function is known."""
    users = [frame for frame in inner(frames) if is_user_file(frame["file"])]
    at = next((n for n, frame in enumerate(users) if place_of(frame) in trainers), 0)
    return f"{users[at]['file']}:{users[at]['line']}" if at else ""


def _saving_and_training_functions(recording: Recording) -> tuple[frozenset[Place], frozenset[Place]]:
    """Functions that save and do not train, and those that train; both empty without a profile, which shows them."""
    savers, trainers, profiles = set[Place](), set[Place](), 0
    for event in events_of(recording.events, StackProfile):
        saving, paths = savers_and_paths(event.data)
        savers |= saving
        trainers |= {*paths.backwards}
        profiles += 1
    sites = [site for facts in recording.facts.values() for site in facts.get("save_sites", ())]
    savers |= {(site["caller"][0], site["caller"][1]) for site in sites if site.get("caller")}
    trained = {_plain(place) for place in trainers}
    saving_alone = (place for each in savers if (place := _plain(each)) not in trained)
    return frozenset(saving_alone if profiles else ()), frozenset(trainers)


def _plain(place: Place) -> Place:
    """The place without the class name, which Python 3.11 puts before the function's."""
    return place[0], place[1].rpartition(".")[2]


def _saves(row: UsersStack, savers: frozenset[Place]) -> bool:
    return any((frame["file"], called(frame)) in savers for frame in row["frames"])


def _samples(
    recording: Recording, savers: frozenset[Place], without_loader: Iterable[int]
) -> Iterator[tuple[int, UsersStack]]:
    """Stack samples between steps. Without a loader, no mark but the lines of the loop show where the time after the update ends."""
    without_loader = frozenset(without_loader)
    paths, evaluations = loop_paths(recording, without_loader), evaluation_lines(recording)
    for event in recording.events:
        rows: Iterable[tuple[int, UsersStack]] = ()
        fed, profile, sample = (
            event.rank not in without_loader,
            data_of(event, StackProfile),
            data_of(event, StackSample),
        )
        if profile is not None:
            whole = ((row["count"], row) for row in user_rows(profile))
            rows = chain(between_steps(profile), after_saving(profile, savers)) if fed else whole
        elif sample is not None and sample.get("user") and _between_steps(sample):
            rows = [(1, cast(UsersStack, sample))]
        known = None if event.rank is None else paths.get(event.rank)
        for count, row in rows:
            if fed or (known and after_own_update(row, known) and not evaluates(row, evaluations)):
                yield count, row


def _between_steps(sample: StackSample) -> bool:
    """True between steps; samples before the first step are set-up."""
    return sample.get("phase") in ("gap", "clip") and sample.get("step", 0) >= 1


def writes_output(row: UsersStack) -> bool:
    """True if the user's line writes output, by its text or by a frame that it called."""
    user = row["user"]
    if _OUTPUT_LINE.search(user.get("text", "")):
        return True
    for frame in row["frames"]:
        file = frame["file"]
        if called(frame) in _OUTPUT_FUNCTIONS:
            return True
        if (file, frame["function"]) == (user["file"], user["function"]):
            return False  # from here outwards they are callers
        if any(part in file for part in _OUTPUT_FILES):
            return True
    return False


def leaf_of(row: UsersStack) -> str:
    """The innermost frame of a stack; empty if it is the user's own."""
    return "" if is_user_file(row["frames"][0]["file"]) else place(row["frames"][0])


def place(frame: StackFrame) -> str:
    return f"{frame['function']} ({frame['file'].rpartition('/')[2]}:{frame['line']})"
