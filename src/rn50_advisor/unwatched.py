"""Starts the job unwatched, where our own modules or libraries cannot be imported. Standard library only."""

from __future__ import annotations

import errno
import os
import sys

TYPE_CHECKING = False  # importing `typing` would find a module of the working directory's that is called `types`
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

# The options of `run`, to find the job's command line where click or our own modules cannot be imported.
_FLAGS = frozenset({"--no-tui", "--deep", "--deep-auto"})
_VALUED = frozenset(
    {
        "--run-dir",
        "--name",
        "--config",
        "--overhead-budget",
        "--report",
        "--merge-listen",
        "--merge-to",
        "--merge-token-file",
        "--metrics-file",
        "--metrics-listen",
        "--otlp",
        "--notify",
    }
)
_NOT_EXECUTABLE, _NOT_FOUND = 126, 127


def job_of(arguments: Sequence[str]) -> list[str]:
    """The job's command line; empty where there is none to run, or where an option is not known and it may begin anywhere."""
    left = list(arguments)
    if left[:1] != ["run"]:
        return []
    del left[0]
    while left:
        first = left.pop(0)
        if first == "--":
            return left
        if not first.startswith("-") or first == "-":
            return [first, *left]
        name, given, _ = first.partition("=")
        if name in _VALUED:
            del left[: 0 if given else 1]
        elif first not in _FLAGS:
            return []
    return []


def become(job: Sequence[str], reason: BaseException) -> NoReturn:
    """This process becomes the job, unwatched: its output, its exit code, its signals. Only where the job has not been started."""
    import shutil
    import signal

    say(f"the job runs unwatched: {describe(reason)}")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores them, and an exec hands that on
        signal.signal(number, signal.SIG_DFL)
    environment = _given_environment()
    path = os.fsdecode(environment.get(b"PATH", os.fsencode(os.defpath)))
    found = job[0] if "/" in job[0] else shutil.which(job[0], path=path) or job[0]
    try:
        try:
            os.execve(found, list(job), environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            os.execve(
                "/bin/sh", ["/bin/sh", found, *job[1:]], environment
            )  # a script that has no #! line, as shells do
    except OSError as error:
        say(f"{job[0]}: {error.strerror}")
        sys.exit(_NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else _NOT_EXECUTABLE)


def _given_environment() -> dict[bytes, bytes]:
    """As it was handed to us: Python adds LC_CTYPE to its own under the C locale (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry[1:])


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def say(line: str) -> None:
    """One line on stderr, past every buffer."""
    text = "".join(character if character.isprintable() else " " for character in line[:500])
    try:
        os.write(2, f"rn50-advisor: {text}\n".encode(errors="replace"))
    except OSError:
        pass  # nobody is there to read it
