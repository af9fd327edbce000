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
    script.write_text("log.write(line)\n" * 100)
    stacks = [CountedStack(1, "", (Frame("write", str(script), 1 + n),), 1 + n) for n in range(80)]
    kept = summed(stacks)
    assert kept["looks"] == sum(range(1, 81))
    assert [row["count"] for row in kept["stacks"]] == list(range(80, 20, -1))
    assert kept["stacks"][0]["user"] == {
        "function": "write",
        "file": str(script),
        "line": 80,
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
