"""Starts modules of ours as processes of their own, out of reach of whatever lies in the user's working directory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rn50_advisor.advisor.run.launch.job_environment import inherited_environment

# `python -m` would put the working directory first: a user's `queue.py` would break us. Isolated, with the path that we have ourselves,
# and with our environment before PYTHONPATH.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); name = sys.argv.pop(1); "
    "import importlib; from rn50_advisor import entry; entry.put_environment_first(); importlib.import_module(name).main()"
)


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Runs `main()` of a module of ours."""
    path = json.dumps([entry for entry in sys.path if entry])
    return [sys.executable, "-I", "-c", _BOOT, path, module, *arguments]


def start_module(module: str, arguments: Sequence[str], *, descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    return _start(module_command(module, arguments), descriptors)


def start_file(file: Path, arguments: Sequence[str], *, descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """A file that needs nothing but the standard library, and so starts in 10 ms."""
    return _start([sys.executable, "-IS", str(file), *arguments], descriptors)


def _start(command: Sequence[str], descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """In a session of its own, without stdio of ours."""
    null = subprocess.DEVNULL
    return subprocess.Popen(
        command,
        stdin=null,
        stdout=null,
        stderr=null,
        env=inherited_environment(),
        pass_fds=descriptors,
        start_new_session=True,
    )
