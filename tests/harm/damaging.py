"""Damages run files in every way we can think of, by a seed, and tries what reads them. Not a test; by hand: `damaging.py FIRST COUNT`."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import resource
import shutil
import signal
import sqlite3
import sys
import tarfile
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from rn50_advisor.advisor.model.errors import AdvisorError, NotARun

HERE = Path(__file__).resolve().parent
SAMPLES = HERE.parents[1] / "samples" / "runs"
BUNDLES = (HERE / "small_run.tar.gz", HERE / "small_run.tar.gz", SAMPLES / "item-each-step.tar.gz")
LONGEST_S = 60  # of one damaged run; a whole one takes a tenth of a second
MOST_BYTES = 6 << 30  # of address space, torch's and numpy's included

_PAGE = 4096
_DEEP = "[" * 100_000
_BLOB, _NOT_UTF8 = "CAST(x'fffe00' AS BLOB)", "CAST(x'ffc0616263' AS TEXT)"
# What stands in a cell, as SQL.
CELLS = (
    *("NULL", "''", "'x'", "'-1'", _BLOB, _NOT_UTF8, "zeroblob(5)", "9e999", "-9e999", "1.5", "-1", "0", "1"),
    *("9223372036854775807", "-9223372036854775808", "4611686018427387904", "1e308", "'nan'", "'{}'", "'[]'", "'null'"),
)
# What stands at a place of a JSON document.
VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 1.5, 1e308, 10**30, -(2**63), float("nan"), float("inf"), "", "x", "-1", "\ud800"),
    *([], {}, [[]], [{}], [None], {"": None}, {"a": []}, ["x"], [1, 2], [[1, 2, 3]], {"x": "y"}, "y" * 100_000),
)
JSON_CELLS = (("meta", "value"), ("facts", "value"), ("events", "data"), ("part_names", "value"))


class Bases:
    """Whole runs, unpacked, their tables without types and constraints: in those any cell can hold anything."""

    def __init__(self, folder: Path) -> None:
        self._files = {}
        for bundle in set(BUNDLES):
            with tarfile.open(bundle) as archive:
                member = next(m for m in archive.getmembers() if m.name.endswith("run.sqlite"))
                source = archive.extractfile(member)
                assert source is not None
                file = folder / f"{bundle.name}.sqlite"
                file.write_bytes(source.read())
            _loosen(file)
            self._files[bundle] = file

    def lay(self, number: int, run: Path) -> None:
        run.mkdir()
        shutil.copyfile(self._files[BUNDLES[number % len(BUNDLES)]], run / "run.sqlite")


def _loosen(file: Path) -> None:
    db = sqlite3.connect(file)
    for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
        columns = ", ".join(row[1] for row in db.execute(f"PRAGMA table_info({table})"))
        db.execute(f"ALTER TABLE {table} RENAME TO old")
        db.execute(f"CREATE TABLE {table} ({columns})")
        db.execute(f"INSERT INTO {table} SELECT * FROM old")
        db.execute("DROP TABLE old")
    db.commit()
    db.execute("VACUUM")
    db.close()


def damage(run: Path, dice: random.Random) -> str:
    """Does one thing to the run file, or few; says what."""
    act = dice.choices(
        (_cut_off, _flip, _spoil_cells, _spoil_json, _spoil_table, _absurd_times, _identity),
        weights=(6, 10, 34, 34, 8, 7, 1),
    )[0]
    return f"{act.__name__[1:]}: {act(run / 'run.sqlite', dice)}"


def _cut_off(file: Path, dice: random.Random) -> str:
    size = file.stat().st_size
    keep = dice.randrange(size // _PAGE + 1) * _PAGE + dice.choice((0, 0, 1, 100, 4095))
    with file.open("r+b") as opened:
        opened.truncate(min(keep, size))
    return f"after {keep} of {size} bytes"


def _flip(file: Path, dice: random.Random) -> str:
    data = bytearray(file.read_bytes())
    times = dice.choice((1, 4, 32, 256))
    page = dice.randrange(len(data) // _PAGE) * _PAGE
    for _ in range(times):
        at = page + dice.randrange(_PAGE) if dice.random() < 0.5 else dice.randrange(100, len(data))
        data[at] ^= 1 << dice.randrange(8)
    file.write_bytes(data)
    return f"{times} bits, page {page // _PAGE}"


def _tables(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name")]


def _columns(db: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in db.execute(f"PRAGMA table_info({table})")]


def _spoil_cells(file: Path, dice: random.Random) -> str:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        table = dice.choice(_tables(db))
        column, value = dice.choice(_columns(db, table)), dice.choice(CELLS)
        which = dice.choice(
            ("1", f"rowid = (SELECT rowid FROM {table} LIMIT 1 OFFSET {dice.randrange(8)})", "rowid % 3 = 0")
        )
        db.execute(f"UPDATE {table} SET {column} = {value} WHERE {which}")
    return f"{table}.{column} = {value} where {which}"


def _places(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    if isinstance(document, dict):
        for key in document:
            yield from _places(document[key], (*path, key))
    elif isinstance(document, list):
        for index in range(min(len(document), 3)):
            yield from _places(document[index], (*path, index))


def _put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    if not path:
        return value
    document = copy.deepcopy(document)
    inner = document
    for step in path[:-1]:
        inner = inner[step]
    if value is _GONE:
        del inner[path[-1]]
    else:
        inner[path[-1]] = value
    return document


_GONE = object()


def _spoil_json(file: Path, dice: random.Random) -> str:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        table, column = dice.choice([cell for cell in JSON_CELLS if cell[0] in _tables(db)])
        rows = db.execute(f"SELECT rowid, {column} FROM {table} ORDER BY rowid").fetchall()
        if not rows:
            return "nothing there"
        rowid, text = dice.choice(rows)
        if dice.random() < 0.08:
            made = dice.choice(
                (text[: len(text) // 2], _DEEP, '{"a":' * 5000 + "1" + "}" * 5000, "", "1" * 5000, "NaN")
            )
            where = f"raw text {made[:12]!r}"
        else:
            document = json.loads(text)
            places = list(_places(document))
            path = dice.choice([place for place in places if place] or places)
            value = dice.choice((*VALUES, _GONE, _GONE))
            made = json.dumps(_put(document, path, value if path or value is not _GONE else None))
            where = f"{'.'.join(map(str, path))} = {'nothing' if value is _GONE else repr(value)[:20]}"
        db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (made, rowid))
    return f"{table} row {rowid}: {where}"


def _spoil_table(file: Path, dice: random.Random) -> str:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        table = dice.choice(_tables(db))
        columns = _columns(db, table)
        column = dice.choice(columns)
        change = dice.choice(
            (
                f"DROP TABLE {table}",
                f"DELETE FROM {table}",
                f"INSERT INTO {table} SELECT * FROM {table}",
                f"DELETE FROM {table} WHERE rowid % 2",
                f"ALTER TABLE {table} RENAME COLUMN {column} TO other",
                f"ALTER TABLE {table} RENAME TO other",
                f"ALTER TABLE {table} RENAME TO o; CREATE VIEW {table} AS SELECT * FROM o",
                f"ALTER TABLE {table} RENAME TO o; CREATE TABLE {table} ({', '.join(columns)}, "
                "more AS (hex(zeroblob(400000000))))",
                f"ALTER TABLE {table} RENAME TO o; CREATE TABLE {table} ({', '.join(c for c in columns if c != column)}"
                f"{',' if len(columns) > 1 else ''} {column} AS (hex(zeroblob(400000000)))); "
                + (
                    f"INSERT INTO {table} SELECT {', '.join(c for c in columns if c != column)} FROM o"
                    if len(columns) > 1
                    else ""
                ),
            )
        )
        db.executescript(change)
    return change[:90]


def _absurd_times(file: Path, dice: random.Random) -> str:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        found = [
            (t, c) for t in _tables(db) for c in _columns(db, t) if c.endswith("_ns") or c in ("step", "count", "rank")
        ]
        table, column = dice.choice(found)
        change = dice.choice(
            (
                "{0} + 4611686018427387904",
                "-{0}",
                "9223372036854775807",
                "-9223372036854775808",
                "0",
                "{0} * 1000000",
                "{0} / 1000000",
                "random()",
                "{0} + abs(random()) % 1000000000000",
                "2000000000",
            )
        ).format(column)
        few = dice.choice(("", " WHERE rowid % 5 = 1"))
        db.execute(f"UPDATE {table} SET {column} = CAST({change} AS INTEGER){few}")
    return f"{table}.{column} = {change}{few}"


def _identity(file: Path, dice: random.Random) -> str:
    with contextlib.closing(sqlite3.connect(file, isolation_level=None)) as db:
        what, value = dice.choice(("user_version", "application_id")), dice.choice((0, -1, 2, 99, 2**31 - 1))
        db.execute(f"PRAGMA {what} = {value}")
    return f"{what} = {value}"


# -- what reads ---------------------------------------------------------------------------------------------------------------------


class TooLong(BaseException):
    """A reading did not come to an end."""


@contextlib.contextmanager
def limited() -> Iterator[None]:
    """Ends what hangs; what takes all memory meets MemoryError."""

    def ring(number: int, frame: object) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, ring)
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (MOST_BYTES, limits[1]))
    signal.alarm(LONGEST_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
        resource.setrlimit(resource.RLIMIT_AS, limits)


def reported(run: Path) -> None:
    from rn50_advisor.advisor.merge.job_reading import read_job
    from rn50_advisor.advisor.report import FORMATS, render, text
    from rn50_advisor.advisor.report.perfetto import save_trace
    from rn50_advisor.advisor.verdict.diagnose import diagnose

    recording = read_job(run)
    made = diagnose(recording)
    for format in FORMATS:
        render(made, format)
    save_trace(made, recording, run / "run.perfetto.json", run)
    text.summary(made, "runs/x")


def watched(run: Path) -> None:
    """As the live screen reads, and as the replay does at a few moments."""
    from rn50_advisor.advisor.tui.report_source import LiveSource, ReplayedRun

    LiveSource(run).poll()
    replayed = ReplayedRun(run)
    replayed.paused = True
    for share in (0.0, 0.3, 0.8, 1.0):
        replayed.poll()
        replayed.seek(replayed.duration_s * share)
    replayed.poll()


def compared(run: Path) -> None:
    from rn50_advisor.advisor.config_file import load_config
    from rn50_advisor.advisor.merge.job_reading import read_job
    from rn50_advisor.advisor.report import FORMATS
    from rn50_advisor.advisor.report.compared import render
    from rn50_advisor.advisor.run_comparison import compare, load

    settings = load_config(None)
    whole = load("whole", read_job(BUNDLES[0]), settings, place=0)
    made = compare([whole, load("damaged", read_job(run), settings, place=1)])
    for format in FORMATS:
        render(made, format)


def bundled(run: Path) -> None:
    from rn50_advisor.advisor.store.run_bundle import make_bundle
    from rn50_advisor.advisor.store.run_reader import read_recording

    read_recording(make_bundle(run, run / "b.tar.gz", force=True))


READERS: tuple[Callable[[Path], None], ...] = (reported, watched, compared, bundled)


def outcome(read: Callable[[Path], None], run: Path) -> tuple[str, str]:
    """`report`, `refused`, `refused late` (by the last wall, behind all checks) or `bug`; and the words."""
    try:
        with limited(), contextlib.redirect_stderr(io.StringIO()):
            read(run)
    except AdvisorError as error:
        ok = isinstance(error, NotARun) and "\n" not in error.message and len(error.message) < 1000
        kind = "refused late" if "cannot be analysed" in error.message else "refused"
        return (kind, error.message) if ok else ("bug", f"{type(error).__name__}: {error.message[:200]}")
    except (Exception, TooLong) as error:  # noqa: BLE001 - that is what is looked for
        at = traceback.extract_tb(error.__traceback__)[-1]
        ours = [
            f for f in traceback.extract_tb(error.__traceback__) if "/advisor/" in f.filename or "/rules/" in f.filename
        ]
        at = ours[-1] if ours else at
        return "bug", f"{type(error).__name__}: {str(error)[:80]} at {at.filename.rpartition('/')[2]}:{at.lineno}"
    return "report", ""


def sample(first: int, count: int, *, readers_in_turn: bool = True) -> Iterator[tuple[int, str, str, str, str]]:
    """Number, damage, reader, outcome, words. The number is the seed."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        bases = Bases(folder)
        for number in range(first, first + count):
            dice = random.Random(number)
            run = folder / "run"
            bases.lay(number, run)
            done = damage(run, dice)
            readers = (READERS[0], READERS[1 + number % 3]) if readers_in_turn else READERS
            for read in readers[: 1 + (number % 4 == 0)] if readers_in_turn else readers:
                yield (number, done, read.__name__, *outcome(read, run))
            shutil.rmtree(run)


def main() -> None:
    first, count = map(int, sys.argv[1:3])
    outcomes: Counter[str] = Counter()
    bugs: Counter[str] = Counter()
    spoilt: set[int] = set()
    for number, done, reader, kind, words in sample(first, count):
        outcomes[kind] += 1
        if kind in ("bug", "refused late"):
            if kind == "bug":
                spoilt.add(number)
            bugs[words] += 1
            print(kind, number, reader, done, "->", words, flush=True)
    print(f"{count} damaged runs: {len(spoilt)} end as a bug", dict(outcomes))
    for words, times in bugs.most_common():
        print(times, words)


if __name__ == "__main__":
    main()
