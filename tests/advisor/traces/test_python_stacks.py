"""Python stacks in traces of several versions, and the user's line in them."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.analysis.kernels.chrome_trace import read_trace
from rn50_advisor.advisor.traces.python_stacks import PythonStacks, is_users, users_line
from traces import HOST, TraceBook

THREAD = f"{HOST['pid']}/{HOST['tid']}"


def stacks(book: TraceBook) -> PythonStacks:
    return PythonStacks(read_trace(book.document()), THREAD)


def functions(book: TraceBook, *, callers: bool) -> TraceBook:
    """`main` of train.py calls `collect`, which calls `.item()`; from 10 to 90, 20 to 80, 30 to 40."""
    for name, begin, end, caller in (
        ("train.py(3): main", 10.0, 90.0, "train.py:40"),
        ("train.py(13): collect", 20.0, 80.0, "train.py:8"),
        ("<built-in method item of Tensor object at 0x7f>", 30.0, 40.0, "train.py:14"),
        ("contextlib.py(81): inner", 50.0, 60.0, "train.py:15"),
    ):
        more = {"CallFrom": caller} if callers else {}
        book.host(name, begin, end - begin, cat="python_function", **more)
    return book


@pytest.mark.parametrize(("moment", "line"), [(35.0, 14), (55.0, 15), (25.0, 13), (85.0, 3), (15.0, 3)])
def test_callers_lines_make_the_stack_exact(moment: float, line: int) -> None:
    found = users_line(stacks(functions(TraceBook(), callers=True)).at(moment))
    assert found is not None
    assert (found.file, found.line) == ("train.py", line)
    assert found.exact is (moment in (35.0, 55.0))


def test_the_outer_frames_run_the_lines_that_called() -> None:
    stack = stacks(functions(TraceBook(), callers=True)).at(35.0)
    assert [(frame.function, frame.line, frame.exact) for frame in stack] == [("collect", 14, True), ("main", 8, True)]


def test_without_callers_a_function_is_known_by_its_first_line() -> None:
    found = users_line(stacks(functions(TraceBook(), callers=False)).at(35.0))
    assert found is not None
    assert (found.line, found.function, found.exact) == (13, "collect", False)


def test_old_traces_hold_the_stack_of_each_operator() -> None:
    stack = "/opt/lib/python3.7/site-packages/torch/utils/data/dataloader.py(521): __next__;train.py(42): main;train.py(60): <module>"
    book = TraceBook()
    book.host("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", 10.0, 50.0, **{"Call stack": ""})
    book.host("aten::stack", 20.0, 5.0, **{"Call stack": stack})
    line = stacks(book).fetching_line(10.0, 60.0)
    assert line is not None
    assert (line.file, line.line, line.exact) == ("train.py", 42, True)
    assert stacks(book).at(5.0) == []


def test_an_inexact_line_is_none_that_takes_batches() -> None:
    book = TraceBook()
    book.host("train.py(3): main", 0.0, 90.0, cat="python_function")
    book.host("torch/utils/data/dataloader.py(720): __next__", 10.0, 20.0, cat="python_function")
    assert stacks(book).fetching_line(12.0, 20.0) is None


def test_a_trace_without_stacks_has_none() -> None:
    book = TraceBook()
    book.host("aten::add", 0.0, 5.0)
    assert stacks(book).at(1.0) == []


@pytest.mark.parametrize(
    ("file", "users"),
    [
        ("train.py", True),
        ("/home/me/project/train.py", True),
        ("project/models/net.py", True),
        ("test.py", True),
        ("torch/nn/modules/module.py", False),
        ("transformers/trainer.py", False),
        ("/opt/env/lib/python3.7/site-packages/thing/x.py", False),
        ("threading.py", False),
        ("", False),
    ],
)
def test_the_users_files_are_told_from_packages(file: str, users: bool) -> None:
    assert is_users(file) is users
