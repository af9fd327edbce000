"""Starts our own modules as separate processes that import nothing from the user's working directory."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from rn50_advisor.advisor.run.launch.job_environment import inherited_environment

# `python -m` would put the working directory first: a user's `queue.py` would break us. So: isolated mode, this process's own path,
# and our environment before PYTHONPATH.
_BOOT = (
    "import json, sys; sys.path[:] = json.loads(sys.argv.pop(1)); name = sys.argv.pop(1); "
    "import importlib; from rn50_advisor import entry; entry.put_environment_first(); importlib.import_module(name).main()"
)


def module_command(module: str, arguments: Sequence[str]) -> list[str]:
    """Returns the command that runs `main()` of one of our modules."""
    path = json.dumps([entry for entry in sys.path if entry])
    return [sys.executable, "-I", "-c", _BOOT, path, module, *arguments]


def start_module(module: str, arguments: Sequence[str], *, descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    return _start(module_command(module, arguments), descriptors)


def start_file(file: Path, arguments: Sequence[str], *, descriptors: Sequence[int] = ()) -> subprocess.Popen[bytes]:
    """A file that needs nothing but the standard library, and so starts in 10 ms."""
    return _start([sys.executable, "-IS", str(file), *arguments], descriptors)


def _start(command: Sequence[str], descriptors: Sequence[int]) -> subprocess.Popen[bytes]:
    """Starts the command in its own session, with all three standard streams on /dev/null."""
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
