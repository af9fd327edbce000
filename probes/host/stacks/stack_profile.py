"""Stack profile of a process: py-spy samples the Python stacks of all threads many times per second without stopping it."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass

from rn50_advisor.advisor.model.metrics import ProbeGap
from rn50_advisor.probes.host.stacks.process_stacks import METRIC, Frame, run_py_spy

RATE_HZ = 200  # samples of each thread in a second

_LINE = re.compile(r"thread \((?P<id>\w+)\)(: (?P<name>[^;]*))?;(?P<frames>.+) (?P<count>\d+)")
_FRAME = re.compile(r"(?P<function>.+?) \((?P<file>.+):(?P<line>\d+)\)")


@dataclass(frozen=True, slots=True)
class CountedStack:
    """Frames innermost first, and their number of samples. `thread_id` is the kernel's; None if py-spy does not know it."""

    thread_id: int | None
    name: str
    frames: tuple[Frame, ...]
    count: int


def profile_stacks(
    pid: int, *, asleep: bool = True, seconds: int = 2, rate_hz: int = RATE_HZ, timeout_s: float = 10.0
) -> tuple[CountedStack, ...] | ProbeGap:
    """Samples the stacks of all threads for `seconds`; `asleep` includes sleeping threads.

    Measured: 500 samples of a thread took 0.1 s of CPU time.
    """
    try:
        # without a name nothing is left of it if the advisor ends meanwhile
        with tempfile.TemporaryFile() as file:
            name = f"/proc/{os.getpid()}/fd/{file.fileno()}"
            # fmt: off
            done = run_py_spy(
                pid, "record", *(("--idle",) if asleep else ()), "--threads", "--full-filenames", "--format", "raw",
                "--rate", str(rate_hz), "--duration", str(seconds), "--output", name, timeout_s=seconds + timeout_s,
            )
            # fmt: on
            file.seek(0)
            return done if isinstance(done, ProbeGap) else tuple(parse_raw(file.read().decode(errors="replace")))
    except OSError as e:  # a full disk, or a container with a read-only root
        reason = f"no temporary file for a profile: {e.strerror or e}"
        return ProbeGap(METRIC, f"pid:{pid}", reason, "set TMPDIR to a folder with room")


def profile_awake(pid: int) -> tuple[CountedStack, ...] | ProbeGap:
    """Like `profile_stacks`, without sleeping threads."""
    return profile_stacks(pid, asleep=False)


def parse_raw(text: str) -> Iterator[CountedStack]:
    """Parses `py-spy record --format raw --threads`. Skips other lines, since a file name may contain anything."""
    for line in text.splitlines():
        found = _LINE.fullmatch(line)
        frames = [_FRAME.fullmatch(frame) for frame in found["frames"].split(";")] if found else []
        if found is None or not all(frames):
            continue
        named = tuple(Frame(f["function"], f["file"], int(f["line"])) for f in reversed(frames) if f)
        thread = int(found["id"]) if found["id"].isdecimal() else None
        yield CountedStack(thread, found["name"] or "", named, int(found["count"]))
