"""Which stacks of a profile lie between steps, and which after the backward pass."""

from __future__ import annotations

from typing import Any

import pytest

from rn50_advisor.advisor.analysis.stacks.stack_profiles import after_backward, between_steps, user_rows

SCRIPT = "/job/train.py"
FETCH, FORWARD, BACKWARD, STEP = 20, 23, 24, 25
LOADER = ("/env/torch/utils/data/dataloader.py", "__next__", 700)
MODULE = ("/env/torch/nn/modules/module.py", "_call_impl", 1790)
TENSOR = ("/env/torch/_tensor.py", "Tensor.backward", 640)  # from Python 3.11 on with its class
NO_GRAD = ("/env/torch/utils/_contextlib.py", "context_decorator.<locals>.decorate_context", 120)
TRACKER = ("/env/torch/utils/tensorboard/writer.py", "SummaryWriter.add_histogram", 480)
OPTIMIZER = ("/env/torch/optim/sgd.py", "step", 120)
SAVE = ("/env/torch/serialization.py", "save", 900)
LAUNCHER = ("/env/torch/distributed/run.py", "main", 900)


def stack(count: int, line: int, *inner: tuple[str, str, int], outer: tuple[tuple[str, str, int], ...] = ()) -> Any:
    """The loop's line, what it called (outermost first), and what called the script."""
    frames = [*reversed(inner), (SCRIPT, "train", line), (SCRIPT, "<module>", 60), *outer]
    named = [{"file": file, "function": function, "line": at} for file, function, at in frames]
    user = next(f for f in named if f["file"].startswith("/job/"))
    return {"count": count, "frames": named, "user": user}


STEPS = [stack(10, FETCH, LOADER), stack(90, FORWARD, MODULE), stack(150, BACKWARD, TENSOR), stack(40, STEP, OPTIMIZER)]
CHECKPOINT = [stack(9, 29, (SCRIPT, "keep", 40), SAVE), stack(2, 29, (SCRIPT, "keep", 39), MODULE)]


def lines(rows: list[Any], *, share: float = 0.3) -> dict[int, int]:
    looks = sum(row["count"] for row in rows)
    found: dict[int, int] = {}
    for count, row in between_steps({"outside_share": share, "looks": looks, "stacks": rows}):
        found[row["user"]["line"]] = found.get(row["user"]["line"], 0) + count
    return found


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([*STEPS, stack(30, 27)], {27: 30}),
        ([*STEPS, stack(30, 27, ("/usr/lib/python3.11/logging/__init__.py", "emit", 1100))], {27: 30}),
        ([*STEPS, stack(20, 28, (SCRIPT, "log", 12)), stack(10, 28, (SCRIPT, "log", 13))], {12: 20, 13: 10}),
        ([*STEPS, stack(30, 27, outer=(LAUNCHER,))], {27: 30}),
        ([*STEPS, stack(30, 22)], {}),
        ([*STEPS, stack(30, 22, ("/job/model.py", "prepare", 5))], {}),
        ([*STEPS, stack(30, FORWARD, MODULE, ("/job/model.py", "forward", 9))], {}),
        ([*STEPS, stack(30, FETCH, LOADER, ("/job/data.py", "__getitem__", 9))], {}),
        ([*STEPS, *CHECKPOINT, stack(30, 29, (SCRIPT, "keep", 42))], {}),
        ([*STEPS, stack(9, 29, SAVE), stack(30, 30)], {30: 30}),
        ([*STEPS, stack(30, 28, NO_GRAD, (SCRIPT, "watch", 12))], {12: 30}),
        ([*STEPS, stack(30, 27, TRACKER)], {27: 30}),
        ([*STEPS, stack(30, 27, ("/env/torch/_tensor.py", "Tensor.norm", 9))], {27: 30}),
        ([*STEPS, stack(30, 27, ("/env/torch/distributed/distributed_c10d.py", "all_reduce", 9))], {}),
        ([*STEPS, stack(60, 28, (SCRIPT, "check", 12), MODULE), stack(3, 28, (SCRIPT, "check", 13))], {12: 60, 13: 3}),
        ([*STEPS, stack(60, 27, MODULE), stack(1, 29, OPTIMIZER)], {27: 60}),
        ([*STEPS, stack(60, 27, OPTIMIZER)], {}),
        ([*STEPS, stack(9, 28, (SCRIPT, "evaluate", 12), LOADER), stack(60, 28, (SCRIPT, "evaluate", 13), MODULE)], {}),
        ([*STEPS, stack(9, 28, LOADER), stack(60, 29, MODULE)], {}),
        (STEPS, {}),
        ([], {}),
    ],
    ids=[
        "a line after the optimizer",
        "the line that called a library",
        "lines of a function that the loop calls after the optimizer",
        "torch outside the loop, which started the script",
        "a line between fetch and backward",
        "a function called between fetch and backward",
        "the user's model",
        "the user's dataset",
        "the rest of a function that saves",
        "a line of a loop that saves by itself",
        "a function of the user's that torch decorates",
        "a tracker of torch's",
        "an expression on a tensor",
        "an exchange",
        "an evaluation that no loader feeds",
        "an evaluation, and a torn stack",
        "another optimizer",
        "an evaluation that a loader feeds",
        "an evaluation in the loop that a loader feeds",
        "nothing but torch",
        "an empty profile",
    ],
)
def test_what_lies_between_steps(rows: list[Any], expected: dict[int, int]) -> None:
    assert lines(rows) == expected


def test_a_line_that_takes_far_more_than_the_phases_leave_for_it_is_not_only_between_steps() -> None:
    rows = [stack(90, FORWARD, MODULE), stack(100, 22), stack(20, 27)]  # nothing shows where the loop fetches
    assert lines(rows, share=0.1) == {27: 20}


def test_without_a_line_that_fetches_the_loop_is_not_guessed_at() -> None:
    assert lines([stack(150, BACKWARD, TENSOR), stack(30, 22)]) == {22: 30}


def test_a_torn_stack_moves_no_backward_pass() -> None:
    rows = [stack(150, 24, TENSOR), stack(60, 26, (SCRIPT, "watch", 12)), stack(40, 28, OPTIMIZER)]
    for torn in ([], [stack(1, 26, TENSOR)], [stack(1, 24, OPTIMIZER)]):
        found = after_backward({"stacks": [*rows, *torn]}).rows
        assert 60 in [count for count, _ in found]


def test_a_stack_whose_user_line_is_in_no_file_of_the_user_s_is_left_out() -> None:
    """Another installation recorded it, which did not know this file for a library's."""
    foreign = {**STEPS[1], "frames": [frame for frame in STEPS[1]["frames"] if frame["file"] != SCRIPT]}
    assert user_rows({"outside_share": 0.0, "looks": 100, "stacks": [STEPS[0], foreign]}) == [STEPS[0]]
