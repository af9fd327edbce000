"""The environment of the job: ours, as we were given it, and the two variables that bring the recorder along."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import rn50_advisor.probes.rank

FOLDER_VARIABLE = b"RN50_ADVISOR_DIR"
PATH_VARIABLE = b"PYTHONPATH"
# Under the C locale Python sets this in its own environment (PEP 538); it was not there, so the job shall not see it.
_COERCED = b"LC_CTYPE"


class CannotInject(Exception):
    """The recorder cannot be brought into the job; says why."""


def inherited_environment() -> dict[bytes, bytes]:
    """Our environment without what our own interpreter added to it."""
    variables = dict(os.environb)
    if (
        _COERCED in variables
        and os.environb[_COERCED] in {b"C.UTF-8", b"C.utf8", b"UTF-8"}
        and not _was_given(_COERCED)
    ):
        del variables[_COERCED]
    return variables


def with_recorder(variables: Mapping[bytes, bytes], ring_folder: Path) -> dict[bytes, bytes]:
    """The same with the recorder's folder in front of PYTHONPATH, or with its twin where that was unset or empty.

    The twin tells the children of the job what it stands for: appended to nothing, `$PYTHONPATH:/src` has an empty entry. A folder and not
    a variable: one text reaches whoever is handed PYTHONPATH alone, and is still known when tools make its entries absolute.
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


def _was_given(name: bytes) -> bool:
    """Whether the kernel handed this variable to us; where that cannot be read, Python's word is taken."""
    try:
        given = Path("/proc/self/environ").read_bytes()
    except OSError:
        return True
    return any(entry.startswith(name + b"=") for entry in given.split(b"\0"))
