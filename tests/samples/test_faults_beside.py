"""Scenarios that only wait run beside one another: grouped by repetition, each in a process of its own, ended in order."""

from __future__ import annotations

import subprocess
import time
from dataclasses import replace
from pathlib import Path

import pytest
import samples.faults.__main__ as suite
from click.testing import CliRunner
from samples.faults.__main__ import main, turns
from samples.faults.beside import run_beside, suite_of_one
from samples.faults.catalogue import SCENARIOS
from samples.faults.results import machine, write_json
from samples.faults.runner import Bench
from samples.faults.scenario import Job, Scenario, Truth
from samples.faults.score import Result


def scenario(name: str, *, waits: bool = True) -> Scenario:
    truth = Truth(roots=("RUN001",))
    return Scenario(name=name, family="endings", job=Job("train.py"), truth=truth, strength="clear", waits=waits)


A, B, C = scenario("a"), scenario("b", waits=False), scenario("c")


def test_those_that_wait_run_together_in_each_repetition_and_all_others_alone() -> None:
    todo = [(each, repetition) for repetition in range(2) for each in (A, B, C)]
    assert turns(todo) == [([A, C], 0), ([B], 0), ([A, C], 1), ([B], 1)]


def test_every_scenario_has_its_turn_and_none_that_waits_needs_fixtures_or_a_fix() -> None:
    ran = [each for scenarios, _ in turns([(each, 0) for each in SCENARIOS]) for each in scenarios]
    assert sorted(each.name for each in ran) == sorted(each.name for each in SCENARIOS)
    assert all(not each.fixtures and each.remedy is None for each in SCENARIOS if each.waits)


def test_an_advisor_that_fails_is_a_wrong_verdict_and_the_suite_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Result:
        raise KeyError("step.time_s")

    monkeypatch.setattr(suite, "run_scenario", fail)
    (result,) = suite.run_turn([B], Bench(tmp_path), 1)
    assert (result.scenario, result.repetition, result.right) == ("b", 1, False)
    assert "KeyError: 'step.time_s'" in result.broken


def test_what_could_not_be_undone_ends_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Result:
        raise subprocess.CalledProcessError(1, "umount")

    monkeypatch.setattr(suite, "run_scenario", fail)
    with pytest.raises(subprocess.CalledProcessError):
        suite.run_turn([B], Bench(tmp_path), 0)


def test_each_is_run_by_a_suite_of_its_own(tmp_path: Path) -> None:
    waiting = next(each for each in SCENARIOS if each.waits)
    command = suite_of_one(waiting, Bench(tmp_path / "own", tmp_path / "kept"), tmp_path / "one.json")
    options = command[command.index("samples.faults") + 1 :]
    shown = CliRunner().invoke(main, [*options, "--list"])
    assert [line.split()[0] for line in shown.output.splitlines()] == [waiting.name]
    assert options[options.index("--folder") + 1] == str(tmp_path)


def test_their_results_come_in_order_and_know_their_repetition(tmp_path: Path) -> None:
    made = {name: Result(name, "RUN001", "RUN001", "clear", verdict="RUN001", right=True) for name in "ac"}
    for name, result in made.items():
        write_json(tmp_path / f"made-{name}", [result], machine())

    def copy(each: Scenario, _bench: Bench, file: Path) -> list[str]:
        return ["cp", str(tmp_path / f"made-{each.name}"), str(file)]

    found = run_beside([C, A], Bench(tmp_path), 2, command=copy, apart_s=0.0)
    kept = [replace(result, machine="", date="") for result in found]
    assert kept == [replace(made[name], repetition=2) for name in "ca"]


def test_one_that_brings_no_result_is_broken_and_the_others_count(tmp_path: Path) -> None:
    write_json(tmp_path / "made", [Result("c", "RUN001", "RUN001", "clear", right=True)], machine())

    def command(each: Scenario, _bench: Bench, file: Path) -> list[str]:
        words = {"a": "echo it fell over >&2; exit 3", "c": f"cp {tmp_path / 'made'} {file}"}
        return ["sh", "-c", words[each.name]]

    broken, fine = run_beside([A, C], Bench(tmp_path), command=command, apart_s=0.0)
    assert not broken.right and "it fell over" in broken.broken and broken.scenario == "a"
    assert fine.right


def test_those_that_run_are_ended_in_order_when_the_suite_is_interrupted(tmp_path: Path) -> None:
    begun, undone = tmp_path / "begun", tmp_path / "undone"

    def command(each: Scenario, _bench: Bench, _file: Path) -> list[str]:
        if each is A:
            return ["sh", "-c", f"trap 'touch {undone}; exit' TERM; touch {begun}; while :; do sleep 0.05; done"]
        deadline = time.monotonic() + 30
        while not begun.exists():
            assert time.monotonic() < deadline, "it never began"
            time.sleep(0.01)
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_beside([A, C], Bench(tmp_path), command=command, apart_s=0.0)
    assert undone.exists()
