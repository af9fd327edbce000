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
_NEAR_MAX, _NEAR_MIN = 5, 0.75  # names that are considered, and how like they must be (`difflib`)


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
        if "/" in found and os.path.isfile(found):  # noqa: PTH113 - the same
            return CommandNotFound(f"{command}: its interpreter does not exist", _interpreter_hint(found))
        hint = _likely_meant(command, _path_of(environment))
        if "/" in command or not command:
            return CommandNotFound(f"{command!r}: no such file", hint)
        return CommandNotFound(
            f"{command}: command not found", hint or "is the right environment active? PATH was searched"
        )
    if os.path.isdir(found):  # noqa: PTH112 - Path.is_dir raises before Python 3.14 where it may not ask
        reason, hint = "is a directory", ""
    elif error.errno == errno.EACCES:
        example = f": python {command}" if command.endswith(".py") else ""
        reason, hint = "permission denied", f"chmod +x {command}, or name its interpreter first{example}"
    elif error.errno == errno.ENOEXEC:
        reason, hint = "is not a program for this machine", ""
    else:
        reason, hint = error.strerror or str(error), ""
    return CommandNotExecutable(f"{command}: {reason}", hint)


def _resolve(command: str, environment: Mapping[bytes, bytes]) -> str:
    """Returns the file that PATH finds, executable or not; the command itself if it finds none."""
    if "/" in command:
        return command
    path = _path_of(environment)
    return shutil.which(command, path=path) or shutil.which(command, mode=os.F_OK, path=path) or command


def _path_of(environment: Mapping[bytes, bytes]) -> str:
    return os.fsdecode(environment.get(b"PATH", os.fsencode(os.defpath)))


def _likely_meant(command: str, path: str) -> str:
    """Returns a hint at what the user meant: a quoted command line, a script without its interpreter, or a name like this one."""
    import difflib  # noqa: PLC0415 - no job that starts needs it

    words = command.split()
    if len(words) > 1 and shutil.which(words[0], path=path):
        return f"a command and its arguments are separate words: leave out the quotes around {command}"
    folder, _, name = command.rpartition("/")
    if not folder and os.path.isfile(command):  # noqa: PTH113 - Path.is_file raises before Python 3.14 where it may not ask
        return f"did you mean python {command}?" if command.endswith(".py") else f"did you mean ./{command}?"
    places = [folder or "/"] if "/" in command else path.split(os.pathsep)
    names = {found for place in places for found in _names_in(place or ".")}
    near = next((n for n in difflib.get_close_matches(name, names, _NEAR_MAX, _NEAR_MIN) if _is_file_in(n, places)), "")
    if not near:
        return ""
    return f"did you mean {folder}/{near}?" if "/" in command else f"did you mean {near}?"


def _names_in(place: str) -> list[str]:
    try:
        return os.listdir(place)  # noqa: PTH208 - names only
    except OSError:
        return []


def _is_file_in(name: str, places: Sequence[str]) -> bool:
    return any(os.path.isfile(os.path.join(place or ".", name)) for place in places)  # noqa: PTH113, PTH118 - the same


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
