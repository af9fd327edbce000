"""Packs one run into one file for sharing, and unpacks such a file without trusting it."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
import secrets
import sqlite3
import tarfile
import tempfile
import zlib
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

from rn50_advisor.advisor.model.errors import AdvisorError, NotARun, UsageError
from rn50_advisor.advisor.store.kept_trials import TRIED_NAME, UnreadableTrials, encoded, read_tried
from rn50_advisor.advisor.store.run_access import find_database, open_database, table_names
from rn50_advisor.advisor.store.run_summary import read_times
from rn50_advisor.advisor.store.schema import FILE_NAME, INDEXES, NODES_NAME, OUTPUT_NAME
from rn50_advisor.advisor.store.secrets.masking import as_json, redact_text
from rn50_advisor.advisor.store.secrets.secret_lines import MaskedLines

SUFFIX = ".tar.gz"
OUTPUT_TAIL_BYTES = 1 << 20
UNPACKED_BYTES_MAX = 2 << 30  # ten times what retention lets a run grow to
_MEMBERS_MAX = 16
_CHUNK_BYTES = 1 << 20
_READ_BYTES_MAX = 1 << 22
_WANTED = frozenset({FILE_NAME, NODES_NAME, TRIED_NAME})


class _Measured(gzip.GzipFile):
    """A stream that refuses huge reads: tarfile reads a member's extended header into memory, whatever its size."""

    def read(self, size: int | None = -1) -> bytes:
        if size is None or not 0 <= size <= _READ_BYTES_MAX:
            raise tarfile.ReadError("a header of it is too large")
        return super().read(size)


def make_bundle(run: Path, output: Path | None = None, *, force: bool = False, with_code: bool = False) -> Path:
    """Writes `<run>.tar.gz` (or `output`): copies of the run file, other nodes' data and trials, and the output's tail, secrets masked.

    The same run gives the same bytes. The job's source files in the run are left out unless `with_code`: fixes in a report of the
    bundle then name file, line and arguments, but have no diff.
    """
    database = find_database(run)
    folder = database.parent.resolve()
    output = output or Path(f"{folder.name}{SUFFIX}")
    try:
        with tempfile.TemporaryDirectory(prefix="rn50-unpacked-") as temporary:
            copy = Path(temporary) / FILE_NAME
            with open_database(database) as db:
                _copy_database(db, copy, with_code=with_code)
            contents = {
                FILE_NAME: copy.read_bytes(),
                NODES_NAME: _copy_nodes(folder / NODES_NAME, Path(temporary) / NODES_NAME),
                OUTPUT_NAME: _output_tail(folder / OUTPUT_NAME),
                TRIED_NAME: _trials(folder, with_code=with_code),
            }
            _write_private(output, lambda file: _pack(file, folder.name, contents), force=force)
    except FileExistsError:
        raise UsageError(f"{output} exists", "name another file with -o, or pass --force") from None
    except OSError as error:
        raise AdvisorError(f"the bundle {output} could not be written: {error.strerror or error}") from error
    return output


def is_bundle(path: Path) -> bool:
    try:
        with path.open("rb") as file:
            return file.read(2) == b"\x1f\x8b"
    except OSError:
        return False


def unpack_bundle(bundle: Path, folder: Path) -> Path:
    """Unpacks a bundle's run file, other nodes' data and trials into `folder`. Raises NotARun.

    Never uses names inside the archive as paths.
    """
    left = UNPACKED_BYTES_MAX
    got: set[str] = set()
    try:
        with _Measured(bundle, "rb") as packed, tarfile.open(fileobj=packed, mode="r:") as archive:
            for _ in range(_MEMBERS_MAX):
                member = archive.next()
                if member is None or got == _WANTED:
                    break
                left -= member.size
                if left < 0:
                    raise tarfile.ReadError(f"it unpacks to more than {UNPACKED_BYTES_MAX >> 30} GiB")
                name = PurePosixPath(member.name).name
                if member.isfile() and name in _WANTED - got:
                    _extract(archive, member, folder / name)
                    got.add(name)
    except (tarfile.TarError, zlib.error, EOFError, OSError, ValueError) as error:
        if FILE_NAME not in got:
            raise NotARun(f"{bundle} is not a bundle of a run: {error}") from error
    if FILE_NAME not in got:
        raise NotARun(f"{bundle} is not a bundle of a run: there is no {FILE_NAME} in it")
    return folder / FILE_NAME


def _copy_database(db: sqlite3.Connection, copy: Path, *, with_code: bool) -> None:
    target = sqlite3.connect(copy, isolation_level=None)
    try:
        db.backup(target)
        target.execute("PRAGMA journal_mode = DELETE")  # a bundle is read where no -shm can be made
        _leave_data_alone(target)
        if not with_code and "sources" in table_names(target):
            target.execute("DELETE FROM sources")
        _mask(target)
        target.execute("VACUUM")  # drops the pages that retention freed, with their content
    finally:
        target.close()


def _leave_data_alone(db: sqlite3.Connection) -> None:
    """Disables everything in a foreign file that would run while rows are masked: triggers, constraints, indexes over expressions."""
    db.execute("PRAGMA ignore_check_constraints = ON")
    kept = {f"CREATE INDEX {table}_by_{column} ON {table} ({column})" for table, column in INDEXES.items()}
    found = db.execute("SELECT type, name, sql FROM sqlite_master WHERE type != 'table' AND sql IS NOT NULL").fetchall()
    for kind, name, sql in found:
        if sql not in kept:
            quoted = name.replace('"', '""')
            db.execute(f'DROP {kind} IF EXISTS "{quoted}"')


def _mask(db: sqlite3.Connection) -> None:
    """Masks secrets again: an older version, which knew fewer shapes, may have recorded the run."""
    db.create_function("masked", 1, _masked_value, deterministic=True)
    for table in table_names(db):
        columns = [
            str(name) for _, name, kind, *_ in db.execute(f'PRAGMA table_info("{table}")') if kind.upper() == "TEXT"
        ]
        if columns and table != "sources":  # sources were masked as Python
            changes = ", ".join(f'"{name}" = masked("{name}")' for name in columns)
            db.execute(f'UPDATE OR REPLACE "{table}" SET {changes}')


def _masked_value(value: Any) -> Any:
    if not isinstance(value, str):
        return value
    if value[:1] in ("{", "[", '"'):
        with contextlib.suppress(ValueError, RecursionError):
            return as_json(json.loads(value))
    return redact_text(value)


def _copy_nodes(file: Path, copy: Path) -> bytes:
    """Returns a copy of the other nodes' data, empty if there is none.

    A damaged file is copied as it is, so that a report of the bundle names the damage too.
    """
    if not _is_plain(file):
        return b""
    try:
        with (
            contextlib.closing(sqlite3.connect(f"{file.resolve().as_uri()}?mode=ro", uri=True, timeout=5)) as db,
            contextlib.closing(sqlite3.connect(copy, isolation_level=None)) as target,
        ):
            db.backup(target)
            target.execute("PRAGMA journal_mode = DELETE")
    except sqlite3.Error:
        return file.read_bytes()
    return copy.read_bytes()


def _trials(folder: Path, *, with_code: bool) -> bytes:
    """Returns the result of `try` that is kept with the run, empty if there is none. A diff shows code of the job."""
    try:
        tried = read_tried(folder, read_times(folder).started_unix_s)
    except (UnreadableTrials, NotARun):
        return b""
    return encoded(tried, with_diffs=with_code).encode() if tried else b""


def _is_plain(file: Path) -> bool:
    """True if the file is no link and no pipe: in a stranger's folder a link may lead to any of the reader's files; a pipe never ends."""
    return file.is_file() and not file.is_symlink()


def _output_tail(log: Path) -> bytes:
    if not _is_plain(log):
        return b""
    try:
        with log.open("rb") as file:
            size = file.seek(0, io.SEEK_END)
            file.seek(max(0, size - OUTPUT_TAIL_BYTES))
            tail = file.read(OUTPUT_TAIL_BYTES)
    except FileNotFoundError:
        return b""
    if size > OUTPUT_TAIL_BYTES:
        tail = tail.partition(b"\n")[2]  # a secret cut in half would not be recognised
    lines = MaskedLines()
    return lines.take(tail) + lines.end()


def _write_private(output: Path, write: Callable[[BinaryIO], None], *, force: bool) -> None:
    """Writes the file atomically and readable by its owner only, even if it replaces a more open one. Raises OSError."""
    if output.exists() and not (force and output.is_file()):  # a device is not replaced either
        raise FileExistsError(output)
    new = output.with_name(f".{output.name}-{secrets.token_hex(4)}")
    descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as file:
            write(file)
        if force:
            new.replace(output)
            return
        try:
            output.hardlink_to(new)
        except FileExistsError:
            raise  # created meanwhile
        except OSError:
            new.replace(output)  # a file system without links
    finally:
        new.unlink(missing_ok=True)


def _pack(file: BinaryIO, name: str, contents: dict[str, bytes]) -> None:
    with (
        gzip.GzipFile(filename="", mode="wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for member_name, content in sorted(contents.items(), key=lambda item: item[0] != FILE_NAME):
            if content:
                member = tarfile.TarInfo(f"{name}/{member_name}")
                member.size = len(content)
                member.mode = 0o600
                archive.addfile(member, io.BytesIO(content))


def _extract(archive: tarfile.TarFile, member: tarfile.TarInfo, target: Path) -> None:
    source = archive.extractfile(member)
    if source is None:
        raise tarfile.ReadError(f"{member.name} cannot be read")
    with source, target.open("wb") as file:
        left = member.size
        while left > 0:
            chunk = source.read(min(_CHUNK_BYTES, left))
            if not chunk:
                raise tarfile.ReadError(f"{member.name} is cut off")
            file.write(chunk)
            left -= len(chunk)
