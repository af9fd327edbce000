"""Lists processes that died, in order of death, and the innermost error of each: for a loader worker or spawned rank, its own error."""

from __future__ import annotations

import re

from rn50_advisor.advisor.model.incidents import Death, RaisedError
from rn50_advisor.advisor.model.recording import Process, Recording, events_of
from rn50_advisor.probes.documents.event_documents import EndRequest, PrintedLines
from rn50_advisor.probes.documents.rank_documents import ExceptionFacts
from rn50_advisor.probes.host.stacks.process_stacks import is_user_file

_TRACEBACK = "Traceback (most recent call last):"
_CAUGHT = re.compile(r"Caught \w+ in (DataLoader worker process \d+|pin memory thread[^.\n]*|replica \d+[^.\n]*)")
_FRAME = re.compile(r'^  File "(.+)", line (\d+), in (.+)$', re.MULTILINE)
# The line that names the error: the first unindented one after the frames.
_NAMED = re.compile(r"^[A-Za-z_][\w.]*(?:: .*)?$", re.MULTILINE)
# torch marks tracebacks with the rank, torchrun marks redirected output with the local rank
_OWN_LINE = re.compile(r"\s*\[(rank|default)(\d+)\]:")
_LAST_LINES = 5
_LENGTH_MAX = 400  # characters


def requests(recording: Recording) -> tuple[float, ...]:
    """Times at which the job was asked to end, in seconds since its start."""
    start = recording.meta.started_ns
    return tuple(sorted((e.t_ns - start) / 1e9 for e in events_of(recording.events, EndRequest)))


def deaths(recording: Recording) -> tuple[Death, ...]:
    """Ranks and workers that did not exit cleanly with code 0, in order of death."""
    found = []
    for process in recording.processes:
        if process.role == "other" or process.ended_ns is None:
            continue
        failed = bool(process.exit_signal) or bool(process.exit_code) or process.oom_killed
        unexplained = process.exit_code is None and process.exit_signal is None and process.clean_exit is False
        if not failed and not (unexplained and process.role == "rank"):
            continue
        phase, step, _ = recording.positions.get(process.rank if process.rank is not None else -1, ("", 0, 0))
        error = recording.facts.get(process.pid, {}).get("exception") or ExceptionFacts()
        text = f"{error.get('type')}: {error.get('message')}" if error else ""
        # a process that ended by itself has recorded its last phase
        found.append((process, error.get("phase") or phase, step, text, raised_error(error)))
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
            raised=raised,
            first=process.pid == first,
            loader=_loader_of(recording, process),
            t_error_s=errors.get(process.rank if process.rank is not None else -1, 0.0),
            last_lines=_last_lines(recording, process) if process.role == "rank" else (),
        )
        for process, phase, step, text, raised in found
    )


def _last_lines(recording: Recording, process: Process) -> tuple[str, ...]:
    """The last lines of the process's output, or of all output if none is marked as its own. Reads the output of its own host."""
    numbers = {"rank": process.rank, "default": process.local_rank}
    own = next((node.recording for node in recording.nodes if process.rank in node.ranks), recording)
    printed = [line for event in events_of(own.events, PrintedLines) for line in event.data.get("lines", ())]
    marked = [line for line in printed if (whose := _OWN_LINE.match(line)) and int(whose[2]) == numbers[whose[1]]]
    return tuple(line for line in marked or printed if any(map(str.isalnum, line)))[
        -_LAST_LINES:
    ]  # no blanks, no rulers


def _loader_of(recording: Recording, process: Process) -> int | None:
    made = recording.batches.get(-1 if process.rank is None else process.rank)
    if made is None:
        return None
    numbers = made["loader"][made["pid"] == process.pid]
    return int(numbers[0]) if numbers.size and numbers[0] >= 0 else None


def raised_error(error: ExceptionFacts) -> RaisedError | None:
    """The error that a rank ended with and the place that raised it first; None if there is no error."""
    if not error:
        return None
    message = error.get("message", "")
    _, traceback, inside = message.rpartition(_TRACEBACK)
    frames = list(_FRAME.finditer(inside)) if traceback else []
    named = _NAMED.search(inside, frames[-1].end()) if frames else None
    if named is None:
        return RaisedError(
            _shortened(f"{error.get('type')}: {message}"),
            "",
            error.get("file", ""),
            error.get("line", 0),
            error.get("function", ""),
        )
    caught = _CAUGHT.search(message)
    own = next((frame for frame in reversed(frames) if is_user_file(frame[1])), None)
    place = (own[1], int(own[2]), own[3]) if own else ("", 0, "")
    return RaisedError(_shortened(inside[named.start() :]), caught[1] if caught else "", *place)


def _shortened(text: str) -> str:
    text = text.strip()
    return text if len(text) <= _LENGTH_MAX else text[: _LENGTH_MAX - 1] + "…"
