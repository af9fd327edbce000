"""Whatever is wrong with a run file or a bundle: a report, or one clear line and exit code 2. `damaging.py` says what is done to them."""

from __future__ import annotations

import gzip
import io
import json
import os
import sqlite3
import sys
import tarfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

import damaging

from rn50_advisor.advisor.cli import _outcome
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.store.document_checks import misfit
from rn50_advisor.advisor.store.run_bundle import make_bundle, unpack_bundle
from rn50_advisor.advisor.store.run_reader import read_recording
from rn50_advisor.advisor.verdict.diagnose import of_a_recording
from rn50_advisor.probes.documents.rank_documents import RankFacts

FIRST, COUNT = 20_000, 120  # of some 70 ms each; by hand 2,500 and more


def test_damaged_runs_end_in_a_report_or_in_one_line() -> None:
    bugs = [
        f"{number} {reader} {done}: {words}"
        for number, done, reader, kind, words in damaging.sample(FIRST, COUNT)
        if kind == "bug"
    ]
    assert not bugs, "\n".join(bugs)


def test_the_line_stays_short_however_long_the_damaged_word() -> None:
    with pytest.raises(NotARun) as raised, of_a_recording(read_recording(damaging.SAMPLES / "item-each-step.tar.gz")):
        float("y" * 100_000)
    assert len(raised.value.message) < 300


@pytest.fixture
def run(tmp_path: Path) -> Path:
    damaging.Bases(tmp_path).lay(0, tmp_path / "run")
    return tmp_path / "run"


def change(run: Path, sql: str) -> None:
    with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as db:
        db.executescript(sql)


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("UPDATE events SET kind = 1.5 WHERE rowid = 1", "table events.*kind is 1.5"),
        ("UPDATE facts SET value = '[1]' WHERE rowid = 1", "table facts, row .*not a JSON object"),
        ("UPDATE steps SET t_end_ns = 0 WHERE rowid = 5", "table steps, rank .*ends before it begins"),
        ("UPDATE steps SET forward_ns = 9223372036854775807 WHERE rowid = 5", "forward_ns is 9223372036854775807"),
        ("UPDATE steps SET count = 0 WHERE rowid = 5", "counts no step"),
        ("UPDATE batches SET cpu_ns = 'x' WHERE rowid = 5", "table batches: not all cells are numbers"),
        ("UPDATE series SET scope = 1.5 WHERE rowid = 1", "table series.*scope is 1.5"),
        ("DELETE FROM series WHERE id = (SELECT metric FROM samples LIMIT 1)", "there is no series"),
        ("UPDATE processes SET role = 'king' WHERE rowid = 1", "'king' is no role"),
        ("UPDATE spans SET rank = -3", "-3 is no rank"),
        ("UPDATE meta SET value = '1e400' WHERE key = 'started_unix_s'", "started_unix_s is inf"),
        ("UPDATE meta SET value = '\"x\"' WHERE key = 'argv'", "argv is 'x'"),
        ("UPDATE gaps SET reason = CAST(x'ff' AS TEXT)", "damaged|UTF-8"),
        (
            "ALTER TABLE samples RENAME TO o; CREATE TABLE samples (t_ns, value, metric AS (hex(zeroblob(400000000))));"
            "INSERT INTO samples SELECT t_ns, value FROM o",
            "columns that are computed",
        ),
        (
            "DROP TABLE gaps; CREATE VIRTUAL TABLE gaps USING fts5(metric, scope, reason, hint)",
            "without the table gaps",
        ),
    ],
)
def test_the_line_says_where(run: Path, sql: str, words: str) -> None:
    if "UPDATE gaps" in sql:
        change(run, "INSERT INTO gaps VALUES ('a', 'b', 'c', 'd')")
    change(run, sql)
    with pytest.raises(NotARun, match=words):
        read_recording(run)


def test_the_command_ends_with_2_and_one_line(run: Path, capsys: Any) -> None:
    change(run, "UPDATE events SET kind = 1.5 WHERE rowid = 1")
    assert _outcome(["report", str(run)]) == 2
    said = capsys.readouterr().err
    assert said.startswith("rn50-advisor: ") and said.count("\n") == 1


@pytest.mark.parametrize(
    ("table", "column", "path", "value"),
    [
        ("facts", "value", ("loaders", 0, "line"), "x"),
        ("facts", "value", ("mounts",), 1e308),
        ("facts", "value", ("work",), [[1]]),
        ("facts", "value", ("ddp",), {"a": 1}),
        ("facts", "value", ("cpus_allowed",), [None]),
        ("events", "data", ("since_ns",), [1, 2]),
        ("events", "data", ("stacks",), [3]),
        ("meta", "value", ("gpus",), [3]),
    ],
)
def test_facts_and_events_of_another_shape_are_ignored_and_the_report_says_so(
    run: Path, table: str, column: str, path: tuple[Any, ...], value: Any
) -> None:
    with closing(sqlite3.connect(run / "run.sqlite", isolation_level=None)) as db:
        for rowid, text in db.execute(f"SELECT rowid, {column} FROM {table} ORDER BY rowid").fetchall():
            document = json.loads(text)
            if isinstance(document, dict) and path[0] in document:
                made = json.dumps(damaging._put(document, path, value))
                db.execute(f"UPDATE {table} SET {column} = ? WHERE rowid = ?", (made, rowid))
                break
    assert any("ignored" in gap.reason and str(path[0]) in gap.reason for gap in read_recording(run).gaps)
    assert damaging.outcome(damaging.reported, run)[0] == "report"


def test_whole_runs_have_nothing_ignored() -> None:
    bundles = [*damaging.SAMPLES.glob("*.tar.gz")]
    assert len(bundles) > 5
    for bundle in bundles:
        assert not [gap for gap in read_recording(bundle).gaps if "ignored" in gap.reason]


def test_names_of_a_newer_advisor_may_hold_anything() -> None:
    assert misfit({"something_new": [{"x": object()}], "loaders": [{"id": 0, "new": [1]}]}, RankFacts) == ""


# -- bundles ------------------------------------------------------------------------------------------------------------------------


def packed(*members: tuple[tarfile.TarInfo, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        for member, content in members:
            member.size = member.size or len(content)
            archive.addfile(member, io.BytesIO(content.ljust(member.size, b"\0") if member.size < 1 << 20 else content))
    return gzip.compress(buffer.getvalue())


def member(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    made = tarfile.TarInfo(name)
    made.type, made.linkname, made.size = kind, link, size
    return made


def header_of(size: int) -> bytes:
    return gzip.compress(member("r/run.sqlite", size=size).tobuf(tarfile.GNU_FORMAT) + bytes(10_240))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda: gzip.compress(b"x" * 5000), id="no archive"),
        pytest.param(lambda: b"\x1f\x8b" + b"x" * 500, id="no gzip"),
        pytest.param(lambda: damaging.BUNDLES[0].read_bytes()[:3000], id="cut off"),
        pytest.param(lambda: packed((member("r/run.sqlite", tarfile.SYMTYPE, "/etc/passwd"), b"")), id="a link"),
        pytest.param(lambda: packed((member("r/run.sqlite", tarfile.LNKTYPE, "/etc/passwd"), b"")), id="a hard link"),
        pytest.param(lambda: packed((member("r/run.sqlite", tarfile.FIFOTYPE), b"")), id="a pipe"),
        pytest.param(lambda: packed((member("r/run.sqlite"), b"hello" * 100)), id="no database"),
        pytest.param(lambda: header_of(1 << 60), id="a member of an exabyte"),
        pytest.param(lambda: header_of(1 << 30), id="a member that is not there"),
        pytest.param(lambda: gzip.compress(bytes(64 << 20)), id="zeros"),
        pytest.param(lambda: packed(*[(member(f"r/{n}"), b"x") for n in range(50)]), id="many members"),
    ],
)
def test_bundles_that_are_none_are_refused(make: Callable[[], bytes], tmp_path: Path) -> None:
    bundle = tmp_path / "b.tar.gz"
    bundle.write_bytes(make())
    for read in (damaging.reported, damaging.compared):
        assert damaging.outcome(read, bundle)[0] == "refused"
    assert list(tmp_path.iterdir()) == [bundle]


def test_names_in_a_bundle_are_never_used_as_paths(run: Path, tmp_path: Path) -> None:
    whole = (run / "run.sqlite").read_bytes()
    bundle = tmp_path / "b.tar.gz"
    bundle.write_bytes(packed((member("../../../../tmp/evil/run.sqlite"), whole), (member("/etc/evil"), b"x")))
    assert read_recording(bundle).meta.name == "tiny"
    assert sorted(p.name for p in tmp_path.iterdir() if p.suffix != ".sqlite") == ["b.tar.gz", "run"]


@pytest.mark.parametrize("name", ["output.log", "nodes.sqlite"])
def test_a_link_in_a_strangers_folder_brings_no_file_of_ours_into_a_bundle(
    run: Path, tmp_path: Path, name: str
) -> None:
    (tmp_path / "diary").write_text("nobody's business\n")
    (run / name).symlink_to(tmp_path / "diary")
    with tarfile.open(make_bundle(run, tmp_path / "b.tar.gz")) as archive:
        assert archive.getnames() == ["run/run.sqlite"]


def test_a_pipe_in_a_strangers_folder_is_not_waited_for(run: Path, tmp_path: Path) -> None:
    os.mkfifo(run / "output.log")
    writer = os.open(run / "output.log", os.O_RDWR)  # whoever reads it fails at once: a pipe has no end to look for
    try:
        with tarfile.open(make_bundle(run, tmp_path / "b.tar.gz")) as archive:
            assert archive.getnames() == ["run/run.sqlite"]
    finally:
        os.close(writer)


def test_nothing_in_a_strangers_run_is_executed_as_it_is_bundled(run: Path, tmp_path: Path) -> None:
    change(
        run,
        "CREATE TRIGGER works AFTER UPDATE ON meta BEGIN INSERT INTO gaps VALUES ('by', 'the', 'trigger', ''); END;"
        "CREATE TRIGGER forbids BEFORE DELETE ON sources BEGIN SELECT RAISE(ABORT, 'no'); END;"
        "INSERT INTO sources VALUES ('a', 'b', 'c', 0);"
        "CREATE INDEX computes ON meta (hex(value))",
    )
    bundle = make_bundle(run, tmp_path / "b.tar.gz")
    assert not [gap for gap in read_recording(bundle).gaps if gap.metric == "by"]
    unpacked = tmp_path / "unpacked"
    unpacked.mkdir()
    with closing(sqlite3.connect(unpack_bundle(bundle, unpacked))) as db:
        assert not db.execute(
            "SELECT name FROM sqlite_master WHERE name IN ('works', 'forbids', 'computes')"
        ).fetchall()


def test_a_table_of_the_strangers_own_may_not_be_computed_either(run: Path) -> None:
    change(run, "CREATE TABLE more (a TEXT, b TEXT AS (hex(zeroblob(400000000))) STORED)")
    with pytest.raises(NotARun, match="more has columns that are computed"):
        read_recording(run)
