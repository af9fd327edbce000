"""What happened once: deaths, and the lines of code that stack samples found between steps."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from rn50_advisor.advisor.analysis.stacks.after_backward import needed_lines
from rn50_advisor.advisor.analysis.stacks.after_update import ways_of_unfed
from rn50_advisor.advisor.analysis.stacks.stack_profiles import (
    Place,
    after_saving,
    after_update,
    between_steps,
    called,
    savers_and_ways,
    told_rows,
)
from rn50_advisor.advisor.model.analysis import Death, HotLine
from rn50_advisor.advisor.model.recording import Process, Recording

# A frame of one of these files, or one of these functions, is output: file writes, printing, loggers and trackers.
_OUTPUT_FILES = (
    "/logging/", "tensorboard", "/wandb/", "/mlflow/", "/csv.py", "/json/", "/pickle", "tqdm", "/rich/", "/comet_ml/", "/clearml/",
    "/neptune/", "loguru",
)  # fmt: skip
# Of these a `log` is a logarithm, as is one without arguments, and `info` is what a file's header says.
_MATHS = (
    "np", "numpy", "jnp", "cp", "cupy", "xp", "torch", "special", "F", "math", "cmath", "emath", "tf", "lax", "sympy",
    "torchaudio", "soundfile", "sf",
)  # fmt: skip
_OUTPUT_LINE = re.compile(
    r"\b(print|write|writelines|writerow|flush|fsync|savetxt|to_csv|log_metrics?|add_scalars?|debug|warning|dump)\s*\("
    r"|" + "".join(rf"(?<!\b{name})" for name in _MATHS) + r"\.(log|info)\s*\((?!\s*\))"
)
_OUTPUT_FUNCTIONS = frozenset(
    ("print", "write", "writelines", "flush", "fsync", "emit", "writerow", "dump", "add_scalar", "savetxt")
)
_OWN_LINE = re.compile(
    r"\s*\[(rank|default)(\d+)\]:"
)  # torch marks tracebacks by rank, torchrun what it redirects by local rank
_LAST_LINES = 5


def requests(recording: Recording) -> tuple[float, ...]:
    """When the job was asked to end, in seconds since its start."""
    start = recording.meta.started_ns
    return tuple(sorted((e.t_ns - start) / 1e9 for e in recording.events if e.kind == "asked_to_end"))


def hot_lines(recording: Recording, unfed: Iterable[int] = ()) -> tuple[tuple[HotLine, ...], float]:
    """Lines of user code by how often a sample found them between steps, most first, and the share of the samples that found a checkpoint.

    Evaluation and what torch saves are labelled elsewhere, but who saves to memory has it still to write.

    Samples come one by one, of moments at which the phase was known, and by profiles, of which what `between_steps` leaves counts. Between
    backward and update some lines have to be.
    """
    found: Counter[tuple[str, int, str]] = Counter()
    savers = _saving_functions(recording)
    leaves: dict[tuple[str, int, str], str] = {}
    outputs: Counter[tuple[str, int, str]] = Counter()
    needed = needed_lines(recording)
    saving = 0
    for count, row in _samples(recording, savers, unfed):
        if _saves(row, savers):
            saving += count
            continue
        user, frames = row["user"], list(row.get("frames") or ())
        key = (str(user["file"]), int(user["line"]), str(user["function"]))
        if key[:2] in needed:
            continue
        found[key] += count
        if _is_output(frames, user) or _OUTPUT_LINE.search(str(user.get("text", ""))):
            outputs[key] += count
        if frames:
            leaves[key] = place(frames[0])
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
        )
        for (file, line, function), n in found.most_common(20)
    )
    return lines, saving / max(total, 1)


def _saving_functions(recording: Recording) -> frozenset[Place]:
    """Functions that save and do not train; none where no profile tells which those are that train."""
    savers, trainers, profiles = set[Place](), set[Place](), 0
    for event in recording.events:
        if event.kind == "profile":
            saving, ways = savers_and_ways(event.data)
            savers |= saving
            trainers |= {*ways.backwards}
            profiles += 1
    sites = [site for facts in recording.facts.values() for site in facts.get("save_sites") or ()]
    savers |= {(str(site["caller"][0]), str(site["caller"][1])) for site in sites if site.get("caller")}
    trained = {_plain(place) for place in trainers}
    return frozenset(place for each in savers if (place := _plain(each)) not in trained) if profiles else frozenset()


def _plain(place: Place) -> Place:
    """Without its class, which Python 3.11 puts before a function."""
    return place[0], place[1].rpartition(".")[2]


def _saves(row: Mapping[str, Any], savers: frozenset[Place]) -> bool:
    return any((str(frame.get("file")), called(frame)) in savers for frame in row.get("frames") or ())


def _samples(
    recording: Recording, savers: frozenset[Place], unfed: Iterable[int]
) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """Of ranks that no loader feeds nothing marks the end of the time after the update: the lines of their loops tell."""
    unfed = frozenset(unfed)
    ways = ways_of_unfed(recording, unfed)
    for event in recording.events:
        sample = event.kind == "stack" and bool(event.data.get("user")) and _between_steps(event.data)
        if event.rank is not None and event.rank in unfed:
            rows = told_rows(event.data) if event.kind == "profile" else [{**event.data, "count": 1}] * sample
            known = ways.get(event.rank)
            yield from ((int(row["count"]), row) for row in rows if known and after_update(row["frames"], known))
        elif event.kind == "profile":
            yield from between_steps(event.data)
            yield from after_saving(event.data, savers)
        elif sample:
            yield 1, event.data


def _between_steps(sample: Mapping[str, Any]) -> bool:
    """What comes before the first step is set-up."""
    return sample.get("phase") in ("gap", "clip") and int(sample.get("step", 0)) >= 1


def _is_output(frames: list[Mapping[str, Any]], user: Mapping[str, Any]) -> bool:
    """Among the frames that the user's line called: anything that writes."""
    for frame in frames:
        file = str(frame.get("file"))
        if called(frame) in _OUTPUT_FUNCTIONS:
            return True
        if (file, frame.get("function")) == (user.get("file"), user.get("function")):
            return False  # from here outwards they are callers
        if any(part in file for part in _OUTPUT_FILES):
            return True
    return False


def place(frame: Mapping[str, Any]) -> str:
    name = str(frame.get("file", "")).rsplit("/", 1)[-1]
    return f"{frame.get('function', '?')} ({name}:{frame.get('line', 0)})"


def deaths(recording: Recording) -> tuple[Death, ...]:
    """Ranks and workers that ended otherwise than by a clean exit with code 0, first to die first."""
    found = []
    for process in recording.processes:
        if process.role == "other" or process.ended_ns is None:
            continue
        failed = bool(process.exit_signal) or bool(process.exit_code) or process.oom_killed
        unseen = process.exit_code is None and process.exit_signal is None and process.clean_exit is False
        if not failed and not (unseen and process.role == "rank"):
            continue
        phase, step, _ = recording.positions.get(process.rank if process.rank is not None else -1, ("", 0, 0))
        error = recording.facts.get(process.pid, {}).get("exception") or {}
        text = f"{error.get('type')}: {error.get('message')}" if error else ""
        # who ends by itself has marked its end
        found.append((process, str(error.get("phase") or phase), step, text))
    found.sort(key=lambda item: item[0].ended_ns or 0)
    ranks = [item for item in found if item[0].role == "rank"]
    first = ranks[0][0].pid if ranks else None
    start = recording.meta.started_ns
    errors = {rank: node.clock.uncertainty_ns / 1e9 for node in recording.nodes for rank in node.ranks}
    return tuple(
        Death(
            rank=process.rank,
            pid=process.pid,
            t_s=((process.ended_ns or start) - start) / 1e9,
            exit_code=process.exit_code,
            signal=process.exit_signal,
            oom_killed=process.oom_killed,
            phase=phase,
            step=step,
            role=process.role,
            exception=text,
            first=process.pid == first,
            loader=_loader_of(recording, process),
            t_error_s=errors.get(process.rank if process.rank is not None else -1, 0.0),
            last_lines=_last_lines(recording, process) if process.role == "rank" else (),
        )
        for process, phase, step, text in found
    )


def _last_lines(recording: Recording, process: Process) -> tuple[str, ...]:
    """Of the output of its own host, where the job is on several."""
    numbers = {"rank": process.rank, "default": process.local_rank}
    own = next((node.recording for node in recording.nodes if process.rank in node.ranks), recording)
    told = [line for event in own.events if event.kind == "output" for line in map(str, event.data.get("lines") or ())]
    marked = [line for line in told if (whose := _OWN_LINE.match(line)) and int(whose[2]) == numbers[whose[1]]]
    return tuple(line for line in marked or told if any(map(str.isalnum, line)))[-_LAST_LINES:]  # no blanks, no rulers


def _loader_of(recording: Recording, process: Process) -> int | None:
    made = recording.batches.get(-1 if process.rank is None else process.rank)
    if made is None:
        return None
    numbers = made["loader"][made["pid"] == process.pid]
    return int(numbers[0]) if numbers.size and numbers[0] >= 0 else None
