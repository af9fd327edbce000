"""Starts the job exactly as a plain exec would have, or says in one line why it cannot be started."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rn50_advisor.advisor.model.errors import CommandNotExecutable, CommandNotFound

_SHELL = "/bin/sh"


def guard_standard_descriptors() -> None:
    """Fills closed standard streams with /dev/null, so that no file of ours gets their numbers. The job still finds them closed."""
    while True:
        descriptor = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        if descriptor > 2:
            os.close(descriptor)
            return


def spawn(
    argv: Sequence[str], environment: Mapping[bytes, bytes], restore_signals: Callable[[], None]
) -> subprocess.Popen[bytes]:
    """Starts the job. Raises CommandNotFound or CommandNotExecutable; OSError for possible effects of ours: E2BIG, or fork failed."""
    try:
        return _start(argv, environment, restore_signals)
    except OSError as error:
        if error.errno == errno.ENOEXEC and _is_text(found := _resolve(argv[0], environment)):
            # what execvp and every shell do with a script that has no #! line
            return _start([_SHELL, found, *argv[1:]], environment, restore_signals)
        if error.errno == errno.E2BIG or error.filename is None:  # a failed fork names no file
            raise
        raise _explain(argv[0], environment, error) from error


def _start(
    argv: Sequence[str], environment: Mapping[bytes, bytes], restore_signals: Callable[[], None]
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        list(argv),
        env=environment,
        close_fds=False,  # the job inherits what we inherited; our own descriptors close on exec
        restore_signals=False,
        preexec_fn=restore_signals,  # noqa: PLW1509 - no thread of ours exists yet
    )


def _explain(
    command: str, environment: Mapping[bytes, bytes], error: OSError
) -> CommandNotFound | CommandNotExecutable:
    found = _resolve(command, environment)
    if error.errno in (errno.ENOENT, errno.ENOTDIR) or not command:  # of no name a folder of PATH is tried
        if os.path.isfile(found):  # noqa: PTH113 - the same
            return CommandNotFound(f"{command}: its interpreter does not exist", _interpreter_hint(found))
        if "/" in command or not command:
            return CommandNotFound(f"{command!r}: no such file")
        return CommandNotFound(f"{command}: command not found", "is the right environment active? PATH was searched")
    if os.path.isdir(found):  # noqa: PTH112 - Path.is_dir raises before Python 3.14 where it may not ask
        reason, hint = "is a directory", ""
    elif error.errno == errno.EACCES:
        reason, hint = "permission denied", f"chmod +x {command}, or name its interpreter first"
    elif error.errno == errno.ENOEXEC:
        reason, hint = "is not a program for this machine", ""
    else:
        reason, hint = error.strerror or str(error), ""
    return CommandNotExecutable(f"{command}: {reason}", hint)


def _resolve(command: str, environment: Mapping[bytes, bytes]) -> str:
    """Returns the file that PATH finds, executable or not; the command itself if it finds none."""
    if "/" in command:
        return command
    path = os.fsdecode(environment.get(b"PATH", os.fsencode(os.defpath)))
    return shutil.which(command, path=path) or shutil.which(command, mode=os.F_OK, path=path) or command


def _is_text(file: str) -> bool:
    try:
        with Path(file).open("rb") as script:
            return b"\0" not in script.read(256).partition(b"\n")[0]
    except OSError:
        return False


def _interpreter_hint(file: str) -> str:
    try:
        with Path(file).open("rb") as script:
            first = script.readline(256)
    except OSError:
        return ""
    return f"its first line says {os.fsdecode(first.strip())}" if first.startswith(b"#!") else ""
