"""Decoding of trace files: dialects, broken JSON, truncated and foreign files."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.traces.trace_json import read_trace_file
from traced_loops import traced_loop, written_trace

EVENT = {
    "ph": "X",
    "cat": "cpu_op",
    "name": "aten::add",
    "pid": 1,
    "tid": 2,
    "ts": 10.5,
    "dur": 2,
    "args": {"External id": 3},
}


def written(folder: Path, content: bytes, name: str = "t.json") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def read(folder: Path, document: Any) -> Any:
    return read_trace_file(written(folder, json.dumps(document).encode()))


def test_a_plain_and_a_compressed_trace_are_the_same(tmp_path: Path) -> None:
    book = traced_loop(steps=2)
    plain, packed = (read_trace_file(written_trace(tmp_path / name, book)) for name in ("a.json", "b.json.gz"))
    assert plain.spans == packed.spans
    assert len(plain.spans) > 10


def test_an_event_keeps_name_times_thread_and_ids(tmp_path: Path) -> None:
    ((category, span),) = read(tmp_path, {"traceEvents": [EVENT]}).spans
    assert (category, span.name, span.start, span.end, span.thread, span.external) == (
        "cpu_op", "aten::add", 10.5, 12.5, "1/2", 3,
    )  # fmt: skip


def test_the_list_of_events_of_torch_1_8_is_read(tmp_path: Path) -> None:
    old = {**EVENT, "tid": "77", "args": {"external id": 4, "Input dims": [[2, 3]], "Input type": ["float"]}}
    ((_, span),) = read(tmp_path, [old]).spans
    assert (span.external, span.args["Input Dims"], span.args["Input type"]) == (4, [[2, 3]], ["float"])


def test_the_header_names_rank_and_devices(tmp_path: Path) -> None:
    header = {
        "distributedInfo": {"rank": 3, "world_size": 8},
        "deviceProperties": [{"id": 0}],
        "baseTimeNanoseconds": 7,
    }
    file = read(tmp_path, {**header, "traceEvents": [EVENT]})
    assert (file.distributed["rank"], file.devices, file.base_ns) == (3, [{"id": 0}], 7)


@pytest.mark.parametrize(
    "broken",
    [
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a\x01b", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {}}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a\xff", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {}}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"bandwidth": inf}}]}',
        b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 1, "dur": 2, "args": {"bandwidth": -nan}}]}',
        b'\xef\xbb\xbf{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "a", "pid": 0, "tid": 7, "ts": 1, "dur": 2}]}',
    ],
    ids=["a control character", "no UTF-8", "infinity", "not a number", "a byte order mark"],
)
def test_what_old_writers_broke_is_read(tmp_path: Path, broken: bytes) -> None:
    ((category, span),) = read_trace_file(written(tmp_path, broken)).spans
    assert (category, span.end) == ("kernel", 3.0)


def test_events_whose_fields_have_other_types_do_not_hide_the_others(tmp_path: Path) -> None:
    odd = {**EVENT, "args": ["no", "object"], "tid": {"id": 1}}
    assert len(read(tmp_path, {"traceEvents": [odd, {"ph": 1}, EVENT]}).spans) == 2


def test_odd_types_and_broken_numbers_in_one_trace_are_read(tmp_path: Path) -> None:
    broken = json.dumps({"traceEvents": [{**EVENT, "args": []}, {**EVENT, "args": {"rate": float("nan")}}]}).encode()
    assert len(read_trace_file(written(tmp_path, broken)).spans) == 2


def test_events_without_a_time_are_left_out(tmp_path: Path) -> None:
    assert len(read(tmp_path, {"traceEvents": [{**EVENT, "ts": "soon"}, EVENT]}).spans) == 1


def test_a_truncated_trace_is_told_in_one_line(tmp_path: Path) -> None:
    whole = json.dumps({"traceEvents": [EVENT] * 50}).encode()
    for name, content in (("a.json", whole[:-30]), ("b.json.gz", gzip.compress(whole)[:-20])):
        with pytest.raises(NotARun, match=r"is cut off") as caught:
            read_trace_file(written(tmp_path, content, name))
        assert "\n" not in caught.value.message


@pytest.mark.parametrize(
    "foreign",
    [b'{"traceEvents": {}}', b'{"traceEvents": []}', b'{"schema": 1}', b"[1, 2]", b"[]", b'{"traceEvents": [}'],
)
def test_foreign_json_is_told_in_one_line(tmp_path: Path, foreign: bytes) -> None:
    with pytest.raises(NotARun, match=r"no trace of torch\.profiler|no valid JSON") as caught:
        read_trace_file(written(tmp_path, foreign))
    assert "\n" not in caught.value.message


def test_a_missing_file_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(NotARun, match="cannot be read"):
        read_trace_file(tmp_path / "none.json")


def test_progress_grows_to_the_decoded_share(tmp_path: Path) -> None:
    seen: list[float] = []
    read_trace_file(written_trace(tmp_path / "t.json", traced_loop(steps=2)), seen.append)
    assert seen == sorted(seen)
    assert 0 < seen[0] < seen[-1] < 1
