"""Which files are traces, and their content."""

from __future__ import annotations

import gzip
import tracemalloc
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.traces import trace_content
from rn50_advisor.advisor.traces.trace_content import looks_like_a_trace
from traced_loops import traced_loop, written_trace


def written(folder: Path, content: bytes, name: str) -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def read(path: Path) -> bytes:
    return trace_content.trace_content(path, lambda share: None, path.name)


def test_content_is_decompressed_whatever_the_name_says(tmp_path: Path) -> None:
    assert read(written(tmp_path, gzip.compress(b"[1]"), "a.json")) == b"[1]"
    assert read(written(tmp_path, b"\xef\xbb\xbf[2]", "b.json.gz")) == b"[2]"


@pytest.mark.parametrize(
    ("content", "words"),
    [(gzip.compress(b"[" * 5000)[:-9], "is cut off"), (b"\x1f\x8b" + b"not compressed", "is damaged")],
    ids=["cut off", "damaged"],  # the bytes hold the time, and a test's name may not
)
def test_what_cannot_be_decompressed_is_told(tmp_path: Path, content: bytes, words: str) -> None:
    with pytest.raises(NotARun, match=words):
        read(written(tmp_path, content, "t.json.gz"))


def test_a_trace_beyond_the_bound_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_content, "BYTES_MAX", 100)
    with pytest.raises(NotARun, match="too large"):
        read(written(tmp_path, gzip.compress(b" " * 200), "t.json.gz"))


def test_a_bomb_is_not_inflated_beyond_the_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_content, "BYTES_MAX", 1 << 20)
    bomb = written(tmp_path, gzip.compress(b" " * (64 << 20)), "t.json.gz")
    tracemalloc.start()
    with pytest.raises(NotARun, match="too large"):
        read(bomb)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 16 << 20


def test_traces_are_told_from_other_files(tmp_path: Path) -> None:
    is_one = [
        written_trace(tmp_path / "a.json", traced_loop(steps=1)),
        written_trace(tmp_path / "a.json.gz", traced_loop(steps=1)),
        written(tmp_path, b'[\n{"ph": "X"', "cut.json"),
    ]
    is_none = [
        written(tmp_path, b'{"schemaVersion": 2, "tables": []}', "settings.json"),
        written(tmp_path, b'{"schema": "rn50-advisor/bench/1"}', "bench.json"),
        written(tmp_path, gzip.compress(b"run.sqlite\0\0\0"), "bundle.tar.gz"),
        written(tmp_path, b"SQLite format 3\0", "run.sqlite"),
        tmp_path / "absent.json",
        tmp_path,
    ]
    assert [looks_like_a_trace(path) for path in is_one] == [True] * 3
    assert [looks_like_a_trace(path) for path in is_none] == [False] * 6
