"""Loops that read a file from its start to one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.run.stacks.collection_calls import collection_call
from rn50_advisor.probes.host.stacks.process_stacks import Frame


def scans(tmp_path: Path, text: str, line: int, inner: str | None = None) -> str | None:
    file = tmp_path / "reviews.py"
    file.write_text(text)
    found = collection_call(Frame("__getitem__", str(file), line), inner)
    return found["call"] if found is not None and found["kind"] == "scans" else None


COUNTED = """\
def __getitem__(self, index):
    with open(self.path) as file:
        for number, line in enumerate(file):
            if number == index:
                break
    return parse(line)
"""


@pytest.mark.parametrize("line", [3, 4])
def test_a_loop_that_counts_lines_up_to_the_wanted_one(tmp_path: Path, line: int) -> None:
    assert scans(tmp_path, COUNTED, line) == "file"


def test_reading_below_the_loop_is_its_time_too_and_what_follows_is_not(tmp_path: Path) -> None:
    assert scans(tmp_path, COUNTED, 3, "BufferedIncrementalDecoder.decode") == "file"
    assert scans(tmp_path, COUNTED, 5) is None
    assert scans(tmp_path, COUNTED, 6, "parse") is None


@pytest.mark.parametrize(
    ("text", "line", "file"),
    [
        pytest.param("for n, row in enumerate(csv.reader(f)):\n    if n != i:\n        continue\n    return row", 1, "csv.reader(f)"),
        pytest.param("f = gzip.open(path)\nfor n, row in enumerate(f):\n    if i == n:\n        return row", 2, "f"),
        pytest.param("rows = csv.reader(f)\nfor n, row in enumerate(rows):\n    if n < i: continue\n    break", 2, "rows"),
        pytest.param("f = open(path)\nfor _ in range(index):\n    f.readline()", 3, "f"),
        pytest.param("f = open(path)\nfor _ in range(index + 1):\n    line = next(f)", 2, "f"),
        pytest.param("with open(path) as f:\n    line = next(islice(f, index, None))", 2, "islice(f, ...)"),
        pytest.param(
            "class Rows:\n    def __init__(self):\n        self.f = open(path)\n    def __getitem__(self, i):\n"
            "        for n, row in enumerate(self.f):\n            if n == i:\n                return row",
            5,
            "self.f",
        ),
    ],
    ids=["continue", "return", "less", "readline", "next", "islice", "kept"],
)  # fmt: skip
def test_each_way_to_go_on_to_a_line(tmp_path: Path, text: str, line: int, file: str) -> None:
    assert scans(tmp_path, text, line) == file


@pytest.mark.parametrize(
    ("text", "line"),
    [
        pytest.param("for n, x in enumerate(items):\n    if n == i:\n        break", 1, id="no file"),
        pytest.param(
            "f = open(p)\nfor n, x in enumerate(f):\n    if n == 0:\n        continue\n    use(x)", 2, id="a header"
        ),
        pytest.param(
            "f = open(p)\nfor n, x in enumerate(f):\n    if n == 100:\n        break", 2, id="the first hundred lines"
        ),
        pytest.param(
            "f = open(p)\nfor n, x in enumerate(f):\n    if n == stop:\n        break\n    use(x)", 2, id="all are used"
        ),
        pytest.param("f = open(p)\nfor n, x in enumerate(f):\n    use(x)", 2, id="no end"),
        pytest.param("f = open(p)\nfor x in f:\n    if x == wanted:\n        break", 2, id="a search for a text"),
        pytest.param("f = open(p)\nfor _ in range(3):\n    f.readline()", 3, id="three lines"),
        pytest.param("f = open(p)\nfor _ in range(n):\n    use(f.readline())", 3, id="lines that are used"),
        pytest.param("for _ in range(n):\n    gym.step()", 2, id="another loop"),
        pytest.param(
            "def a():\n    f = open(p)\ndef b(f):\n    for n, x in enumerate(f):\n        if n == i:\n            break",
            4,
            id="another function's file",
        ),
        pytest.param("for x in islice(loader, n, None):\n    use(x)", 1, id="no file is sliced"),
    ],
)
def test_other_loops_are_none(tmp_path: Path, text: str, line: int) -> None:
    assert scans(tmp_path, text, line) is None
