"""The environment of the job: ours as inherited, plus the two variables that load the recorder."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import rn50_advisor.probes.rank

FOLDER_VARIABLE = b"RN50_ADVISOR_DIR"
PATH_VARIABLE = b"PYTHONPATH"
# Under the C locale, and under one that is not installed, Python sets this in its own environment (PEP 538); the job shall not see that.
_COERCED = b"LC_CTYPE"


class CannotInject(Exception):
    """The recorder cannot be loaded into the job; says why."""


def inherited_environment() -> dict[bytes, bytes]:
    """Our environment without what our own interpreter added to it."""
    variables = dict(os.environb)
    if variables.get(_COERCED) in {b"C.UTF-8", b"C.utf8", b"UTF-8"}:
        del variables[_COERCED]
        variables |= _given(_COERCED)
    return variables


def with_recorder(variables: Mapping[bytes, bytes], ring_folder: Path) -> dict[bytes, bytes]:
    """The variables with the recorder's folder prepended to PYTHONPATH, or its twin where that was unset or empty.

    The twin shows the job's children that PYTHONPATH was unset or empty: `$PYTHONPATH:/src` appended to nothing has
    an empty entry. It is a folder and no variable, because PYTHONPATH alone may be passed on, and a folder survives
    tools that make its entries absolute.
    """
    front, unset = (os.fsencode(folder) for folder in (inject_folder(), inject_folder().with_name("inject_unset")))
    if b":" in front:
        raise CannotInject("the advisor is installed under a path with a colon, which PYTHONPATH cannot name")
    before = variables.get(PATH_VARIABLE, b"")
    path = b":".join((front, before)) if before else unset
    if before.split(b":")[0] in {front, unset}:
        path = before
    return {**variables, FOLDER_VARIABLE: os.fsencode(ring_folder), PATH_VARIABLE: path}


def inject_folder() -> Path:
    return Path(rn50_advisor.probes.rank.__path__[0]) / "inject"


def _given(name: bytes) -> dict[bytes, bytes]:
    """This variable as the kernel passed it to us, or as Python has it where that cannot be read; empty if it was not there."""
    try:
        given = Path("/proc/self/environ").read_bytes()
    except OSError:
        return {name: os.environb[name]}
    entries = (entry.partition(b"=") for entry in given.split(b"\0"))
    return {key: value for key, _, value in entries if key == name}
