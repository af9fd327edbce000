"""Enters the command line; where that cannot be entered, starts the job all the same. Standard library only: the job never imports this."""

from __future__ import annotations

import os
import sys

from rn50_advisor.unwatched import become, describe, job_of, say

_INTERNAL_ERROR = 70


def put_environment_first() -> None:
    """From here on click and the others are found in our environment, before PYTHONPATH and the working directory."""
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
        put_environment_first()
        from rn50_advisor.advisor.cli import main as enter

        if arguments[:1] == ["run"]:
            import rn50_advisor.advisor.commands.run
            import rn50_advisor.advisor.run.launch.launcher  # noqa: F401
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # noqa: BLE001 - whatever a broken installation does, SystemExit too
        job = job_of(arguments)
        if not job:
            say(f"cannot start: {describe(error)}")
            sys.exit(_INTERNAL_ERROR)
        become(job, error)
    enter()
