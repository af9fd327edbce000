"""Profiles of stacks as rows of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rn50_advisor.advisor.run.stacks.stack_rows import summed
from rn50_advisor.probes.host.stacks.process_stacks import Frame
from rn50_advisor.probes.host.stacks.stack_profile import CountedStack

SCRIPT = "/job/train.py"


def test_what_is_kept_has_every_look_the_frequent_stacks_and_the_text_of_the_users_line(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("log.write(line)\n" * 120)
    stacks = [CountedStack(1, "", (Frame("write", str(script), 1 + n),), 1 + n) for n in range(120)]
    kept = summed(stacks)
    assert kept["looks"] == sum(range(1, 121))
    assert [row["count"] for row in kept["stacks"]] == list(range(120, 20, -1))
    assert kept["stacks"][0]["user"] == {
        "function": "write",
        "file": str(script),
        "line": 120,
        "text": "log.write(line)",
    }


def test_a_line_says_what_it_does_with_a_whole_collection(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("batch = take(data[:9])\nrandom.shuffle(data)\n")
    library = Frame("Random.shuffle", "/usr/lib/python3.11/random.py", 350)
    stacks = [
        CountedStack(1, "", (Frame("train", str(script), 1),), 2),
        CountedStack(1, "", (library, Frame("train", str(script), 2)), 1),
    ]
    plain, shuffled = summed(stacks)["stacks"]
    assert "collection" not in plain["user"]
    assert shuffled["user"]["collection"] == {"kind": "permutes", "call": "random.shuffle"}


@pytest.mark.parametrize("name", ["clip.<locals>.<listcomp>", "<listcomp>", "<genexpr>"])
def test_a_comprehension_is_the_function_that_it_stands_in(name: str) -> None:
    frames = (Frame(name, SCRIPT, 42), Frame("clip", SCRIPT, 42), Frame("<module>", SCRIPT, 60))
    (row,) = summed([CountedStack(1, "", frames, 3)])["stacks"]
    assert (row["user"]["function"], row["user"]["line"]) == ("clip", 42)
    alone = summed([CountedStack(1, "", frames[:1], 3)])["stacks"]
    assert alone[0]["user"]["function"] == name


def _stack(count: int, *frames: Frame) -> CountedStack:
    return CountedStack(1, "MainThread", (*frames, Frame("train", SCRIPT, 7)), count)


def test_lines_of_torchs_own_functions_make_no_stacks_of_their_own() -> None:
    adam = "/venv/site-packages/torch/optim/adam.py"
    stacks = [_stack(1 + (n == 3), Frame("_single_tensor_adam", adam, 400 + n)) for n in range(150)]
    (row,) = summed([*stacks, _stack(1)])["stacks"][:1]
    assert (row["count"], row["frames"][0]["line"]) == (151, 403)
    assert summed([*stacks, _stack(1)])["looks"] == 152


def test_rare_stacks_that_the_second_profile_saw_elsewhere_in_their_function_are_as_awake_as_that() -> None:
    cell, sleep = "/job/cell.py", "/job/store.py"
    first = [_stack(1, Frame("forward", cell, n)) for n in range(40)]
    asleep = [_stack(1, Frame("read", sleep, n)) for n in range(40)]
    second = [_stack(1, Frame("forward", cell, 100 + n)) for n in range(30)]
    rows = summed([*first, *asleep], second)["stacks"]
    awake = {file: sum(row["awake"] for row in rows if row["frames"][0]["file"] == file) for file in (cell, sleep)}
    assert awake == {cell: 30, sleep: 0}


def test_a_frequent_stack_is_as_awake_as_the_second_profile_found_it() -> None:
    line, other = Frame("forward", "/job/cell.py", 3), Frame("forward", "/job/cell.py", 4)
    rows = summed([_stack(50, line), _stack(5, other)], [_stack(60, line)])["stacks"]
    assert [row["awake"] for row in rows] == [60, 0]
