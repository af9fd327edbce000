"""Cuts this process off from the user's files and becomes the job: same pid, environment, folder, streams and signals.

Never starts the job where that failed: it says why in its report, and exits with NOT_CONTAINED.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from rn50_advisor.advisor.run.launch.job_environment import FOLDER_VARIABLE, inherited_environment
from rn50_advisor.advisor.run.rings.own_folder import start_ticks
from rn50_advisor.advisor.trials.inside import landlock, namespaces
from rn50_advisor.advisor.trials.inside.overlay_root import NotCovered, OverlayRoot, Plan

NOT_CONTAINED = 118  # no shell, signal or sysexits.h uses it
REPORT = "report"
_CHANGED = (signal.SIGPIPE, signal.SIGXFSZ)  # Python ignores them when it starts
_SHELL = b"/bin/sh"
_NOT_FOUND, _NOT_EXECUTABLE = 127, 126  # as in a shell


def main() -> None:
    """Arguments: what to set up, as JSON, `--`, and the job's command.

    `mode`: overlay or landlock; `private`: our own folder, where each start gets a place of its own; `ignored`: numbers of SIGPIPE and
    SIGXFSZ if the job is to find them ignored; for an overlay see `Plan`; for Landlock `keep`, and `writable`: more paths.
    """
    wanted, separator, *command = sys.argv[1:]
    if separator != "--" or not command:
        raise SystemExit("usage: contained WANTED -- COMMAND")
    spec = json.loads(wanted)
    if ring_folder := inherited_environment().get(FOLDER_VARIABLE):
        spec["keep"] = [*spec.get("keep", ()), os.fsdecode(ring_folder)]
    place = place_of(spec["private"], os.getpid())
    Path(place).mkdir(mode=0o700)
    report = os.open(f"{place}/{REPORT}", os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        outcome = enclose(spec, place)
    except (OSError, NotCovered, ValueError) as error:
        os.write(report, json.dumps({"failed": str(error)}).encode())
        os._exit(NOT_CONTAINED)
    os.write(report, json.dumps(outcome).encode())
    for signum in _CHANGED:
        if signum not in spec.get("ignored", ()):
            signal.signal(signum, signal.SIG_DFL)
    become([os.fsencode(word) for word in command], inherited_environment())


def place_of(private: str, pid: int) -> str:
    """The folder of one start of the job; raises OSError if there is no such process."""
    ticks = start_ticks(pid)
    if ticks is None:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
    return f"{private}/{pid}-{ticks}"


def enclose(spec: Mapping[str, Any], place: str) -> dict[str, Any]:
    """Raises OSError, NotCovered or ValueError where it cannot be done; this process may then be cut off in part."""
    if spec["mode"] == "landlock":
        return {"landlock": landlock.restrict([*spec.get("keep", ()), *spec["writable"]])}
    if spec["mode"] != "overlay":
        raise ValueError(f"no such mode: {spec['mode']}")
    folder = Path.cwd()
    mapping = namespaces.enter()
    root = OverlayRoot(Plan.of(spec, place, str(folder)), mapping)
    root.build()
    root.become_root()
    os.chdir(folder)
    root.verify()
    return {"user_namespace": mapping.user, "read_only": root.read_only, "overlays": root.overlays}


def become(command: Sequence[bytes], environment: Mapping[bytes, bytes]) -> NoReturn:
    """As execvp, with what every shell does with a script that has no #! line."""
    name = os.fsdecode(command[0])
    path = os.fsdecode(environment.get(b"PATH", os.fsencode(os.defpath)))
    found = name if "/" in name else shutil.which(name, path=path)
    try:
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
        try:
            os.execve(found, list(command), environment)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            os.execve(_SHELL, [_SHELL, os.fsencode(found), *command[1:]], environment)
    except OSError as error:
        sys.stderr.write(f"rn50-advisor: {name}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(_NOT_FOUND if isinstance(error, FileNotFoundError) else _NOT_EXECUTABLE)
