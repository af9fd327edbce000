"""Results on paper: what is written can be read again, the table says what was wrong, and no host is named."""

from __future__ import annotations

import platform
from dataclasses import replace
from pathlib import Path

import pytest

from samples.faults.results import cells, headline, machine, markdown, read_json, write_json
from samples.faults.score import Result, summarise

GOOD = Result(
    "in-process",
    "DAT003",
    "DAT003",
    "clear",
    verdict="DAT003",
    ranks=(0, 1),
    right=True,
    first_s=5.0,
    first_steps=12,
    predicted=(1.3, 1.6),
    measured=1.5,
    steps=80,
    step_s=0.07,
    wall_s=12.0,
)
WRONG = replace(
    GOOD,
    scenario="pause",
    truth="LOP004",
    primary="LOP004",
    right=False,
    why_not="DAT003 instead of LOP004",
    first_s=None,
)
SKIPPED = Result("slow-wire", "COM001", "COM001", "clear", skipped="root is needed")


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    write_json(file, [GOOD, WRONG, SKIPPED], machine())
    assert read_json(file) == [GOOD, WRONG, SKIPPED]


@pytest.mark.parametrize("content", ["[]", "{}", "no json"])
def test_another_file_is_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "results.json"
    file.write_text(content)
    with pytest.raises(ValueError):
        read_json(file)


@pytest.mark.parametrize(
    ("result", "shown"),
    [
        (GOOD, ["in-process", "DAT003 rank 0, 1", "yes", "5 s, 12 steps", "1.30–1.60×", "1.50×"]),
        (WRONG, ["NO"]),
        (replace(GOOD, measured=2.5), ["2.50× missed"]),
        (replace(GOOD, disturbed=True), ["yes (disturbed)"]),
        (replace(GOOD, right_place=False), ["yes (wrong place)"]),
        (replace(GOOD, broken="it fell over"), ["yes (broken)"]),
        (replace(GOOD, false_alarms=("LOP004", "MEM002")), ["LOP004, MEM002"]),
        (SKIPPED, ["not run", "root is needed"]),
    ],
)
def test_a_row_says_what_came_out(result: Result, shown: list[str]) -> None:
    assert set(shown) <= set(cells(result))


def test_the_summary_is_said_in_whole_numbers() -> None:
    said = " ".join(
        headline(summarise([GOOD, WRONG, SKIPPED, replace(GOOD, repetition=1, verdict="DAT004", right=False)]))
    )
    assert "1 of 3 verdicts right (33%)" in said
    assert "1 not run" in said
    assert "3 of 3 measured speed-ups inside" in said
    assert "1 of 2 verdicts changed between repetitions: in-process" in said


def test_the_markdown_has_every_scenario_and_every_error_and_no_host() -> None:
    text = markdown([GOOD, WRONG, SKIPPED], machine())
    assert all(f"| {name} |" in text for name in ("in-process", "pause", "slow-wire"))
    assert "- pause: DAT003 instead of LOP004" in text
    assert "| DAT003 | 1 of 1 | 1 of 1 |" in text
    assert platform.python_version() in text and platform.node() not in text


def test_a_cell_never_breaks_the_table() -> None:
    text = markdown([replace(SKIPPED, skipped="sh -c 'a | b'\nfailed")], machine())
    assert "sh -c 'a \\| b' failed |" in text


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (("abc", "abc"), "Advisor: abc."),
        (("abc", "def", "abc"), "Advisor: several states: abc (2 runs), def (1 runs)."),
        (("abc", ""), "Advisor: several states: abc (1 runs), unknown state (1 runs)."),
    ],
)
def test_the_markdown_names_every_state_of_the_advisor_that_judged(states: tuple[str, ...], said: str) -> None:
    results = [replace(GOOD, scenario=f"s{number}", advisor=state) for number, state in enumerate(states)]
    assert said in markdown(results, machine())
