"""The file's format: exact times, slices that nest, text without secrets, and counters that say when they change."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from rn50_advisor.advisor.report.perfetto.trace_book import TraceBook, inside_each_other, lanes, microseconds, plain
from traced_runs import events


def test_perfetto_reads_each_time_to_the_nanosecond() -> None:
    """It multiplies by 1000 and rounds; older versions cut off. Plain division loses a nanosecond here and there."""
    times = [*range(5_000), 1_234_567_891, *range(3_600_000_000_000, 3_600_000_002_000)]
    assert [int(microseconds(ns) * 1000) for ns in times] == times
    assert [round(microseconds(ns) * 1000) for ns in times] == times
    assert any(int(ns / 1000 * 1000) != ns for ns in times)
    assert isinstance(microseconds(5_000), int)


def test_slices_that_overlap_take_several_lanes() -> None:
    assert lanes([(0, 10), (2, 5), (5, 7), (10, 12), (11, 13)]) == [0, 1, 1, 0, 1]
    assert lanes([]) == []


def test_a_slice_ends_with_the_one_that_holds_it() -> None:
    given = [(0, 10), (1, 4), (2, 6), (4, 12), (12, 13)]
    assert list(inside_each_other(given)) == [(0, 10), (1, 4), (2, 4), (4, 10), (12, 13)]


def test_times_are_since_the_jobs_start_and_never_before_it() -> None:
    book = TraceBook(1_000)
    track = book.thread(book.process("p"), "t")
    book.slice(track, "s", (3_500, 4_000), "c", {"n": 1, "unknown": None, "empty": ""})
    book.instant(track, "i", 500, "c")
    one, other = events(book)[-2:]
    assert (one["ts"], one["dur"], one["args"]) == (2.5, 0.5, {"n": 1})
    assert (other["ts"], other["ph"], other["s"]) == (0, "i", "t")


def test_made_up_processes_and_threads_have_numbers_of_nobody() -> None:
    book = TraceBook(0, taken=(1, 3))
    first, second = book.process("findings"), book.process("rank 0", 3)
    threads = [book.thread(second, "loop", 3), book.thread(second, "worker", 77), book.thread(second, "again", 77)]
    assert first == 2
    assert second == 3
    numbers = [first, *(track.tid for track in threads)]
    assert len(set(numbers)) == 4
    assert 1 not in numbers
    order = [event["args"]["sort_index"] for event in events(book) if event["name"].endswith("sort_index")]
    assert order == sorted(order)


def test_a_counter_is_written_where_it_changes() -> None:
    book = TraceBook(0)
    pid = book.process("host")
    book.counter(pid, "CPU busy", "cores", [(0, 1.0), (1_000, 1.0), (2_000, 2.5), (3_000, float("nan"))])
    book.counter(pid, "cores online", "cores", [(0, 2.0)])
    counters = [(e["name"], e["ts"], e["args"]) for e in events(book) if e["ph"] == "C"]
    assert counters == [
        ("CPU busy", 0, {"(cores)": 1}),
        ("CPU busy", 2, {"(cores)": 2.5}),
        ("cores online", 0, {"(number)": 2}),
    ]


def test_text_of_the_job_is_masked_and_printable() -> None:
    book = TraceBook(0)
    track = book.thread(book.process("run --api-key=sk-abcdefghijklmnop1234"), "a\x1b[31mb\nc")
    command = ["train.py", "--password", "hunter2hunter2", "--url", "https://me:s3cr3tpass@host/x"]
    book.slice(track, "token=abcdef1234567890abcdef", (0, 1), "c", {"command": command, "deep": {"a": ["b\x00c"]}})
    text = json.dumps(events(book))
    for secret in (
        "hunter2hunter2",
        "s3cr3tpass",
        "sk-abcdefghijklmnop1234",
        "abcdef1234567890abcdef",
        "\\u001b",
        "\\u0000",
    ):
        assert secret not in text
    assert "train.py" in text and "ab c" in text


@pytest.mark.parametrize(
    ("value", "shown"),
    [(float("inf"), None), (1.23456789, 1.23457), (3.0, 3), (True, True), ((1, "x"), [1, "x"]), (Path("a"), "a")],
)
def test_arguments_are_plain_values(value: object, shown: object) -> None:
    assert plain(value) == shown


@pytest.mark.parametrize("name", ["t.perfetto.json", "t.perfetto.json.gz"])
def test_the_files_name_chooses_compression(tmp_path: Path, name: str) -> None:
    book = TraceBook(0)
    for number in range(5_000):
        book.instant(book.thread(1, "t", 1 + number), f"{number}", number, "c")
    book.save(tmp_path / name, {"run": "x"})
    content = (tmp_path / name).read_bytes()
    assert content.startswith(b"\x1f\x8b") == name.endswith(".gz")
    document = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)
    assert document["otherData"] == {"run": "x"}
    assert [e["name"] for e in document["traceEvents"] if e["ph"] == "i"] == [str(n) for n in range(5_000)]
    book.save(tmp_path / f"again{name}", {"run": "x"})
    assert (tmp_path / f"again{name}").read_bytes() == content
