"""Results on paper: what is written can be read again, the table says what was wrong, and no host is named."""

from __future__ import annotations

import gzip
import platform
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner
from samples.faults.__main__ import main
from samples.faults.results import cells, headline, machine, machine_words, markdown, merged, read_json, write_json
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
    noted=("COM002",),
    told=("COM002",),
    advisor="abc1234",
    machine="2 cores",
    date="2026-01-02",
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
    packed = tmp_path / "results.json.gz"
    write_json(packed, [GOOD, WRONG, SKIPPED], machine())
    assert read_json(packed) == [GOOD, WRONG, SKIPPED]
    assert gzip.decompress(packed.read_bytes()) == file.read_bytes()


def test_files_are_merged_as_repetitions_and_what_is_in_both_counts_once() -> None:
    later = replace(GOOD, date="2026-01-03", advisor="def5678", verdict="DAT004", right=False)
    found = merged([[later, WRONG], [GOOD, WRONG]])
    assert found == [WRONG, GOOD, replace(later, repetition=1)]
    text = markdown(found)
    assert "2026-01-02 to 2026-01-03: 2 cores." in text
    assert "| DAT003 rank 0, 1 (flips) |" in text and "| DAT004 rank 0, 1 (flips) |" in text
    assert "- in-process: DAT003 rank 0, 1 (abc1234), DAT004 rank 0, 1 (def5678 #2)" in text
    assert "1 of 1 verdicts changed between repetitions: in-process." in text


def test_every_row_names_the_state_of_the_advisor_that_judged() -> None:
    rows = [
        line
        for line in markdown([GOOD, SKIPPED, replace(WRONG, advisor="def5678")]).splitlines()
        if line.startswith("| ")
    ]
    assert [line.split(" | ")[-1] for line in rows if line.startswith(("| in-process |", "| pause |"))] == [
        "abc1234 |",
        "def5678 |",
    ]


def test_a_run_that_several_share_is_marked_and_named() -> None:
    text = markdown([GOOD, replace(WRONG, shared="in-process")])
    assert "1.50× (shared)" in text and "- pause: the run with the fix of in-process" in text
    assert "Shared runs:" not in markdown([GOOD])


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
        (replace(GOOD, timed=1.9), ["1.50× (1.90× by the clock)"]),
        (replace(GOOD, timed=1.5), ["1.50×"]),
        (replace(GOOD, turns=True), ["1.50× (in turns)"]),
        (replace(GOOD, disturbed=True), ["yes (disturbed)"]),
        (replace(GOOD, right_place=False), ["yes (wrong place)"]),
        (replace(GOOD, broken="it fell over"), ["yes (broken)"]),
        (replace(GOOD, false_alarms=("LOP004", "MEM002")), ["LOP004, MEM002"]),
        (SKIPPED, ["not run", "root is needed"]),
    ],
)
def test_a_row_says_what_came_out(result: Result, shown: list[str]) -> None:
    assert set(shown) <= set(cells(result))


def test_the_summary_has_whole_numbers() -> None:
    text = " ".join(
        headline(summarise([GOOD, WRONG, SKIPPED, replace(GOOD, repetition=1, verdict="DAT004", right=False)]))
    )
    assert "1 of 3 verdicts right (33%)" in text
    assert "1 not run" in text
    beside = " ".join(headline(summarise([GOOD, replace(GOOD, false_alarms=("LOP004", "MEM002"))])))
    assert "2 of 2 verdicts right" in beside and "1 of them with no false alarm beside (2 in all)" in beside
    assert "3 of 3 measured speed-ups inside" in text
    assert "1 of 1 verdicts changed between repetitions: in-process" in text
    assert "1 of 3 faults found" in text
    assert "2 of 2 first right verdicts within 30 steps or 20 s" in text


def test_the_markdown_has_every_scenario_and_every_error_and_no_host() -> None:
    text = markdown([replace(result, machine=machine_words(machine())) for result in (GOOD, WRONG, SKIPPED)])
    assert all(f"| {name} |" in text for name in ("in-process", "pause", "slow-wire"))
    assert "- pause: DAT003 instead of LOP004" in text
    assert "| DAT003 | 1 of 1 | 1 of 1 |" in text
    assert platform.python_version() in text and platform.node() not in text


def test_a_cell_never_breaks_the_table() -> None:
    text = markdown([replace(SKIPPED, skipped="sh -c 'a | b'\nfailed")])
    assert "sh -c 'a \\| b' failed |" in text


@pytest.mark.parametrize(
    ("states", "line"),
    [
        (("abc", "abc"), "Advisor: abc."),
        (("abc", "def", "abc"), "Advisor: several: abc (2 runs), def (1 runs)."),
        (("abc", ""), "Advisor: several: abc (1 runs), unknown state (1 runs)."),
    ],
)
def test_the_markdown_names_every_state_of_the_advisor_that_judged(states: tuple[str, ...], line: str) -> None:
    results = [replace(GOOD, scenario=f"s{number}", advisor=state) for number, state in enumerate(states)]
    assert line in markdown(results)


def test_merging_files_runs_nothing_and_writes_one_table_of_both(tmp_path: Path) -> None:
    for day, verdict in enumerate(("DAT003", "DAT004")):
        row = replace(GOOD, verdict=verdict, right=verdict == "DAT003", date=f"2026-01-0{day + 1}")
        write_json(tmp_path / f"{day}.json", [row], machine())
    files = [f"--merge={tmp_path / f'{day}.json'}" for day in range(2)]
    table_file, both = tmp_path / "table.md", tmp_path / "both.json"
    done = CliRunner().invoke(main, [*files, f"--markdown={table_file}", f"--json={both}"])
    assert done.exit_code == 1, "one of the verdicts is wrong"
    assert [result.repetition for result in read_json(both)] == [0, 1]
    assert "1 of 1 verdicts changed between repetitions: in-process." in table_file.read_text()


def test_the_markdown_says_how_far_a_speed_up_is_off_and_how_late_a_verdict_came() -> None:
    fast = replace(GOOD, scenario="fast", predicted=(1.0, 2.0), measured=2.5)
    slow = replace(GOOD, scenario="slow", predicted=(2.0, 3.0), measured=1.5, first_s=40.0, first_steps=90)
    within = replace(GOOD, scenario="within", predicted=(1.0, 2.0), measured=2.05, allowance=0.05)
    text = markdown([fast, slow, within])
    _, _, missed = text.partition("## Speed-ups outside their intervals")
    assert "- fast: 25% above what DAT003 promised\n" in missed
    assert "- slow: 25% below what DAT003 promised, first right after 40 s and 90 steps\n" in missed
    assert "within" not in missed
    assert "40 s and 90 steps (a second epoch shows it)\n" in markdown([slow], {"slow": "a second epoch shows it"})
    assert "Speed-ups outside" not in markdown([within])


def test_the_time_that_all_took_is_shown_where_it_was_measured() -> None:
    text = " ".join(headline(summarise([replace(GOOD, took_s=30.0), replace(WRONG, took_s=90.0)])))
    assert "2 minutes in all, 60 s a run" in text
    assert "minutes" not in " ".join(headline(summarise([GOOD])))
