"""Opens a run file read-only: while its job writes, after a crash, or on read-only media. Raises NotARun for other files."""

from __future__ import annotations

import contextlib
import shutil
import sqlite3
import struct
import tempfile
from collections.abc import Iterator
from pathlib import Path

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.store.schema import APPLICATION_ID, FILE_NAME, LATER_TABLES, TABLES, USER_VERSION

_MAGIC = b"SQLite format 3\0"
_IDENTITY = struct.Struct(">60xI4xI")  # user_version and application_id, as https://sqlite.org/fileformat.html has them
_HEADER_BYTES = 100


def find_database(path: Path) -> Path:
    """Returns the run file: `path` itself, or the one in that folder. Raises NotARun."""
    try:
        if path.is_dir():
            path = path / FILE_NAME
            if not path.exists():
                raise NotARun(f"{path.parent} holds no run: there is no {FILE_NAME} in it")
        elif not path.exists():
            raise NotARun(f"{path} does not exist", "`rn50-advisor report latest` takes the newest run")
    except OSError as error:
        raise NotARun(f"{path} cannot be read: {error.strerror}") from error
    return path


def check_identity(database: Path) -> None:
    """Raises NotARun unless the file is a recording of a version that this advisor reads. Reads 100 bytes."""
    try:
        with database.open("rb") as file:
            header = file.read(_HEADER_BYTES)
    except OSError as error:
        raise NotARun(f"{database} cannot be read: {error.strerror}") from error
    if len(header) < _HEADER_BYTES or not header.startswith(_MAGIC):
        raise NotARun(f"{database} is not a run file: it is {'empty' if not header else 'not an SQLite database'}")
    user_version, application_id = _IDENTITY.unpack_from(header)
    if application_id != APPLICATION_ID:
        raise NotARun(f"{database} is not a run file: it is the SQLite database of another program")
    if user_version > USER_VERSION:
        raise NotARun(
            f"{database} has format {user_version}; this rn50-advisor reads up to format {USER_VERSION}",
            "read it with the rn50-advisor that recorded it, or a newer one: pip install -U rn50-advisor",
        )


@contextlib.contextmanager
def open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Opens a read-only connection in one read transaction: everything read through it belongs to one moment.

    SQLite errors inside the block are raised as NotARun.
    """
    database = find_database(path)
    check_identity(database)
    try:
        with contextlib.ExitStack() as stack:
            db = stack.enter_context(_connection(database))
            _check_tables(db, database)
            yield db
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: names in SQLite's own tables
        raise NotARun(f"{database} is damaged: {error}", "`sqlite3 FILE .recover` may save some of it") from error


@contextlib.contextmanager
def _connection(database: Path) -> Iterator[sqlite3.Connection]:
    with contextlib.ExitStack() as stack:
        try:
            db = _begin(stack, database, "mode=ro")
        except sqlite3.OperationalError:
            # In WAL mode even a reader writes the -shm beside the file, which fails on read-only media and full disks.
            wal = database.with_name(database.name + "-wal")
            if not wal.exists() or wal.stat().st_size == 0:
                db = _begin(stack, database, "mode=ro&immutable=1")
            else:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rn50-unpacked-")))
                for file in (database, wal):
                    shutil.copyfile(file, folder / file.name)
                db = _begin(stack, folder / database.name, "mode=rw")
        yield db


def _begin(stack: contextlib.ExitStack, database: Path, how: str) -> sqlite3.Connection:
    db = sqlite3.connect(f"{database.resolve().as_uri()}?{how}", uri=True, isolation_level=None, timeout=10)
    try:
        db.execute("PRAGMA trusted_schema = OFF")  # the file may come from a stranger
        db.execute("PRAGMA query_only = ON")
        db.execute("BEGIN")
        db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    except BaseException:
        db.close()
        raise
    stack.callback(db.close)
    return db


def _check_tables(db: sqlite3.Connection, database: Path) -> None:
    present = table_names(db)
    missing = sorted(TABLES.keys() - LATER_TABLES - present)
    if missing:
        raise NotARun(f"{database} is damaged: without the table{'s'[: len(missing) - 1]} {', '.join(missing)}")
    for table in sorted(present):
        # A generated column can have any size: reading a file of a few kilobytes took 3 GB and hours.
        quoted = table.replace('"', '""')
        if any(hidden for *_, hidden in db.execute(f'PRAGMA table_xinfo("{quoted}")')):
            raise NotARun(f"{database} is not one of our run files: its table {table} has columns that are computed")


def table_names(db: sqlite3.Connection) -> set[str]:
    """Names of plain tables. Views and virtual tables are left out, since they execute code."""
    found = db.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE 'CREATE VIRTUAL%'")
    return {name for (name,) in found}
