"""A job that tries to change files in every way that jobs do: what of it works inside of a containment, and nothing of it outside."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

_CONTENT = b"as it was"


def lay_out(folder: Path) -> None:
    """Makes the files that are to stay as they are. `folder` is empty."""
    for name in ("replaced", "appended", "mapped", "renamed", "removed", "linked"):
        (folder / name).write_bytes(_CONTENT)
    (folder / "emptied" / "inner").mkdir(parents=True)
    (folder / "emptied" / "inner" / "file").write_bytes(_CONTENT)
    with sqlite3.connect(folder / "rows.sqlite") as database:
        database.execute("CREATE TABLE steps (step INTEGER)")
    database.close()


def seen_in(folder: Path) -> dict[str, bytes]:
    """Paths and contents."""
    return {str(path): path.read_bytes() if path.is_file() else b"" for path in sorted(folder.rglob("*"))}


def _map(path: Path) -> None:
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
        mapped[:2] = b"is"
        mapped.flush()


def _empty(path: Path) -> None:
    shutil.rmtree(path)
    path.mkdir()
    (path / "new").write_bytes(b"new")


def _append(path: Path) -> None:
    with path.open("ab") as file:
        file.write(b", and more")


def _insert(path: Path) -> None:
    database = sqlite3.connect(path)
    try:
        database.execute("PRAGMA journal_mode=WAL")
        with database:
            database.execute("INSERT INTO steps VALUES (1)")
    finally:
        database.close()


_ATTEMPTS: dict[str, Callable[[Path], object]] = {
    "made": lambda path: path.write_bytes(b"new"),
    "replaced": lambda path: path.write_bytes(b"new"),
    "appended": _append,
    "mapped": _map,
    "renamed": lambda path: path.rename(path.with_name("other")),
    "removed": lambda path: path.unlink(),
    "linked": lambda path: path.with_name("link").hardlink_to(path),
    "emptied": _empty,
    "rows.sqlite": _insert,
}


def refused(folder: Path) -> list[str]:
    """Changes the files; returns names of the attempts that failed."""
    failed = []
    for name, attempt in _ATTEMPTS.items():
        try:
            attempt(folder / name)
        except (OSError, sqlite3.Error):
            failed.append(name)
    return failed


def unwritable(folders: Sequence[str]) -> list[str]:
    """Folders in which no file can be made."""
    failed = []
    for folder in folders:
        try:
            tempfile.TemporaryFile(dir=folder).close()
        except OSError:
            failed.append(folder)
    return failed


def main() -> None:
    """Arguments: the folder that was laid out, and folders that a job is likely to write to. Prints JSON."""
    folder, *wanted = sys.argv[1:]
    outcome = {"refused": refused(Path(folder)), "unwritable": unwritable(wanted), "cwd": os.getcwd()}  # noqa: PTH109
    sys.stdout.write(json.dumps(outcome))
