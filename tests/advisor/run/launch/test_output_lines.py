"""The job's output as lines: what is overwritten stays one line, nothing breaks between two reads, memory is bounded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress

from rn50_advisor.advisor.run.launch.output_lines import NewOutput, OutputTail


@pytest.fixture(autouse=True)
def tails_are_closed(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A thousand open files in one process of tests would be beyond what `select` can wait for."""
    made: list[OutputTail] = []
    begin = OutputTail.__init__

    def noted(tail: OutputTail, *args: Any, **options: Any) -> None:
        made.append(tail)
        begin(tail, *args, **options)

    monkeypatch.setattr(OutputTail, "__init__", noted)
    yield
    for tail in made:
        tail.close()


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

# As tqdm 4.70 wrote them: a bar of batches below one of epochs, with nothing but counts in them.
NESTED = (
    b"begin\n\repoch: 0/2\n\rbatch: 0/2\x1b[A\n\rbatch: 1/2\x1b[A\n\rbatch: 2/2\x1b[A\n\r          \x1b[A\repoch: 1/2\n\rbatch: 0/2\x1b[A"
    b"\n\rbatch: 1/2\x1b[A\n\rbatch: 2/2\x1b[A\n\r          \x1b[A\repoch: 2/2\repoch: 2/2\ndone\n"
)
LEFT = (
    b"begin\n\repoch: 0/2\n\rbatch: 0/2\x1b[A\n\rbatch: 1/2\x1b[A\n\rbatch: 2/2\x1b[A\rbatch: 2/2\n\repoch: 1/2\n\rbatch: 0/2\x1b[A"
    b"\n\rbatch: 1/2\x1b[A\n\rbatch: 2/2\x1b[A\rbatch: 2/2\n\repoch: 2/2\repoch: 2/2\ndone\n"
)
WRITTEN = (
    b"begin\n\repoch: 0/1\n\rbatch: 0/1\x1b[A\n\rbatch: 1/1\x1b[A\n\r          \x1b[A\r          \rloss 0\n\repoch: 0/1\repoch: 1/1"
    b"\repoch: 1/1\ndone\n"
)
THREE = (
    b"\repoch: 0/1\n\rbatch: 0/1\x1b[A\n\n\rmicro: 0/2\x1b[A\x1b[A\n\n\rmicro: 1/2\x1b[A\x1b[A\n\n\rmicro: 2/2\x1b[A\x1b[A"
    b"\n\n\r          \x1b[A\x1b[A\n\rbatch: 1/1\x1b[A\n\r          \x1b[A\repoch: 1/1\repoch: 1/1\n"
)
CASES |= {
    "bars below each other": (NESTED, ["begin", "epoch: 2/2", "done      "]),
    "bars that stay when they are full": (LEFT, ["begin", "batch: 2/2", "batch: 2/2", "epoch: 2/2", "done"]),
    "a line written above them": (WRITTEN, ["begin", "loss 0    ", "epoch: 1/1", "done"]),
    "three bars": (THREE, ["epoch: 1/1", "          ", "          "]),
    "three bars amid their work": (THREE.split(b"micro: 2/2")[0], ["epoch: 0/1", "batch: 0/1", "micro: 1/2"]),
    "up and down by several": (b"a\nb\nc\nd\x1b[3AX\x1b[2BY\x1b[0AZ\n", ["aX", "b  Z", "c Y", "d"]),
    "no further up than the first, nor down than the last": (b"a\nb\x1b[9Ac\x1b[999Bd\n", ["ac", "b d"]),
    "below the end of a shorter line": (b"ab\n\ncdef\x1b[2A!\n", ["ab  !", "", "cdef"]),
    "what was erased at the end is empty": (b"a\nb\r\x1b[2K\x1b[A", ["a"]),
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
    assert tail.lines_since(2) == NewOutput(2, (), ("50%",))
    with log.open("ab") as file:
        file.write(b"\r99%\nnext\n")
    assert tail.lines_since(2) == NewOutput(3, ("next",), ("99%",))


@pytest.mark.parametrize("data", [case[0] for case in CASES.values()], ids=CASES.keys())
def test_a_caller_that_follows_sees_at_each_moment_what_a_new_one_would(tmp_path: Path, data: bytes) -> None:
    log = tmp_path / "log"
    log.touch()
    following = OutputTail(log)
    lines: list[str] = []
    with log.open("ab", buffering=0) as file:
        for byte in data:
            file.write(bytes([byte]))
            news = following.lines_since(len(lines))
            assert news.total == len(lines) + len(news.lines)
            lines = [*lines[: len(lines) - len(news.rewritten)], *news.rewritten, *news.lines]
            fresh = lines_of(OutputTail(log))
            assert lines == [*fresh, *[""] * (len(lines) - len(fresh))]


def test_the_bars_of_rich_stay_as_many_lines_as_they_are(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as file:
        console = Console(file=file, force_terminal=True, width=60)
        with Progress("{task.description} {task.completed}", console=console, auto_refresh=False) as progress:
            tasks = [progress.add_task(name, total=3) for name in ("epoch", "batch")]
            for _ in range(3):
                for task in tasks:
                    progress.advance(task)
                    progress.refresh()
        console.print("done")
    assert lines_of(OutputTail(tmp_path / "log", colours=False)) == ["epoch 3", "batch 3", "done"]


def test_lines_that_scrolled_far_up_are_no_longer_overwritten(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"".join(b"%d\n" % n for n in range(100)) + b"\x1b[90A!\n")
    assert [n for n, line in enumerate(lines_of(OutputTail(tmp_path / "log"))) if "!" in line] == [68]


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
