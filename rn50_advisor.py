"""Enters the command line; where that cannot be entered, starts the job all the same. One file, standard library only.

`advisor`, `probes` and `rules` are names that a user's own packages have too. In our processes ours are found beside this file, before
anything that PYTHONPATH, the working directory or the environment holds under these names. The job's processes never import this.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from typing import NoReturn

_HERE = os.path.dirname(os.path.abspath(__file__))
_OWN = ("advisor", "probes", "rules")
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
    }
)
_INTERNAL_ERROR, _NOT_EXECUTABLE, _NOT_FOUND = 70, 126, 127


class _OwnFirst:
    """Finds our packages beside this file, and leaves everything else to others."""

    @staticmethod
    def find_spec(name: str, path: Sequence[str] | None = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [_HERE]) if name in _OWN else None


def put_own_first() -> None:
    """From here on ours are ours; and the environment, with click and the others, comes before PYTHONPATH and the working directory."""
    if _OwnFirst not in sys.meta_path:
        sys.meta_path.insert(0, _OwnFirst)
    # a `sitecustomize` or a .pth file of the user's may have imported theirs
    theirs = {
        name
        for name in _OWN
        if name in sys.modules and os.path.join(_HERE, name) not in getattr(sys.modules[name], "__path__", ())
    }
    for name in [name for name in sys.modules if name.partition(".")[0] in theirs]:
        del sys.modules[name]
    given = os.environ.get("PYTHONPATH")
    last = {_absolute(entry) for entry in given.split(os.pathsep)} if given else set()
    if sys.path and not sys.flags.isolated and not getattr(sys.flags, "safe_path", False):
        last.add(sys.path[0])  # the folder of the script, or the working directory
    last -= {os.path.dirname(os.__file__)}
    sys.path.sort(key=last.__contains__)


def _absolute(entry: str) -> str:
    try:
        return os.path.abspath(entry)
    except OSError:
        return entry  # a relative one, and the working directory was deleted


def main() -> None:
    """The console script, and `python -m rn50_advisor`."""
    arguments = sys.argv[1:]
    try:
        put_own_first()
        from advisor.cli import main as enter

        if arguments[:1] == ["run"]:
            import advisor.commands.run
            import advisor.run.launcher  # noqa: F401
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a broken installation does, SystemExit too
        job = job_of(arguments)
        if not job:
            _say(f"cannot start: {_told(error)}")
            sys.exit(_INTERNAL_ERROR)
        become(job, error)
    enter()


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

    _say(f"the job runs unwatched: {_told(reason)}")
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
        _say(f"{job[0]}: {error.strerror}")
        sys.exit(_NOT_FOUND if error.errno in (errno.ENOENT, errno.ENOTDIR) else _NOT_EXECUTABLE)


def _given_environment() -> dict[bytes, bytes]:
    """As it was handed to us: Python adds LC_CTYPE to its own under the C locale (PEP 538)."""
    try:
        with open("/proc/self/environ", "rb") as file:
            entries = file.read().split(b"\0")
    except OSError:
        return dict(os.environb)
    return dict(entry.split(b"=", 1) for entry in entries if b"=" in entry[1:])


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"


def _say(line: str) -> None:
    """One line on stderr, past every buffer."""
    text = "".join(character if character.isprintable() else " " for character in line[:500])
    try:
        os.write(2, f"rn50-advisor: {text}\n".encode(errors="replace"))
    except OSError:
        pass  # nobody is there to read it


if __name__ == "__main__":
    main()
