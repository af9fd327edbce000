"""The job's output as lines: what is overwritten stays one line, nothing breaks between two reads, memory is bounded."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisor.run.output import NewOutput, OutputTail

CASES = {
    "plain": (b"one\ntwo\n", ["one", "two"]),
    "unfinished last line": (b"one\ntw", ["one", "tw"]),
    "empty lines": (b"\n\nx\n", ["", "", "x"]),
    "windows ends": (b"one\r\ntwo\r\n", ["one", "two"]),
    "a progress bar": (b"\r 0%|  |\r50%|# |\r100%|##|", ["100%|##|"]),
    "a progress bar and what follows": (b"\r 0%\r99%\ndone\n", ["99%", "done"]),
    "a shorter text over a longer": (b"abcdef\rxy\n", ["xycdef"]),
    "carriage return and end in two": (b"abc\r", ["abc"]),
    "erase to the end": (b"abcdef\rxy\x1b[K\n", ["xy"]),
    "erase the line": (b"abc\r\x1b[2Kx\n", ["x"]),
    "backspaces": (b"abc\b\bX\n", ["aXc"]),
    "tabs stay": (b"a\tb\n", ["a\tb"]),
    "other controls go": (b"a\x07b\x00c\x1b]0;title\x07d\x1b[3;4Hx\n", ["abcdx"]),
    "controls of eight bits go too": ("a\x9b31mb\x85c\n".encode(), ["a31mbc"]),
    "unicode": ("ünï→☃ 模型\n".encode(), ["ünï→☃ 模型"]),
    "no unicode": (b"a\xff\xfeb\n", ["a\ufffd\ufffdb"]),
}


def lines_of(tail: OutputTail) -> list[str]:
    return list(tail.lines_since(0).lines)


@pytest.mark.parametrize(("data", "lines"), CASES.values(), ids=CASES.keys())
def test_bytes_become_lines(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    (tmp_path / "log").write_bytes(data)
    assert lines_of(OutputTail(tmp_path / "log", colours=False)) == lines


@pytest.mark.parametrize(("data", "lines"), CASES.values(), ids=CASES.keys())
def test_it_makes_no_difference_where_reads_end(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    log = tmp_path / "log"
    log.touch()
    tail = OutputTail(log, colours=False)
    with log.open("ab", buffering=0) as file:
        for byte in data:
            file.write(bytes([byte]))
            tail.lines_since(0)
    assert lines_of(tail) == lines


COLOURS = {
    "one word": (b"a \x1b[31mred\x1b[0m b\n", ["a \x1b[31mred\x1b[0m b"]),
    "over two lines": (b"\x1b[1mone\ntwo\x1b[0m\n", ["\x1b[1mone\x1b[0m", "\x1b[1mtwo\x1b[0m"]),
    "two at once": (b"\x1b[1;32mok\x1b[m\n", ["\x1b[1;32mok\x1b[0m"]),
    "reset and set": (b"\x1b[1mA\x1b[0;31mB\x1b[0m\n", ["\x1b[1mA\x1b[0m\x1b[31mB\x1b[0m"]),
    "overwritten": (b"\x1b[31mred\x1b[0m\rRED\n", ["RED"]),
}


@pytest.mark.parametrize(("data", "lines"), COLOURS.values(), ids=COLOURS.keys())
def test_colours_are_kept_complete_in_each_line(tmp_path: Path, data: bytes, lines: list[str]) -> None:
    (tmp_path / "log").write_bytes(data)
    assert lines_of(OutputTail(tmp_path / "log")) == lines


def test_a_file_that_is_not_there_yet_has_no_lines(tmp_path: Path) -> None:
    tail = OutputTail(tmp_path / "log")
    assert tail.lines_since(0) == NewOutput(0)
    (tmp_path / "log").write_bytes(b"now\n")
    assert tail.lines_since(0).lines == ("now",)


def test_a_caller_learns_what_is_new_and_how_its_last_line_went_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"one\n 0%")
    tail = OutputTail(log)
    assert tail.lines_since(0) == NewOutput(2, ("one", " 0%"))
    with log.open("ab") as file:
        file.write(b"\r50%")
    assert tail.lines_since(2) == NewOutput(2, (), "50%")
    with log.open("ab") as file:
        file.write(b"\r99%\nnext\n")
    assert tail.lines_since(2) == NewOutput(3, ("next",), "99%")


def test_only_the_last_lines_are_kept(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"".join(b"%d\n" % i for i in range(1000)))
    news = OutputTail(tmp_path / "log", lines_max=10).lines_since(0)
    assert news.total == 1000
    assert news.lines == tuple(str(i) for i in range(990, 1000))


def test_far_behind_it_skips_and_says_so(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as file:
        file.write(b"begin\n" + b"x" * 99 + b"\n")
        file.truncate(64 << 20)
        file.seek(0, 2)
        file.write(b"\nend\n")
    tail = OutputTail(tmp_path / "log")
    lines = lines_of(tail)
    assert lines[0].endswith("bytes of output are not shown]")
    assert lines[-1] == "end"
    assert "begin" not in lines


def test_a_line_without_end_takes_bounded_memory(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"x" * 3_000_000 + b"\rdone")
    line = lines_of(OutputTail(tmp_path / "log"))[-1]
    assert line.startswith("done")
    assert len(line) <= 10_000
