"""Decisions of the runner: whose neighbours disturb a measurement, and what fixtures bring together."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from recordings import recording

from samples.faults.fixtures import Burners, CpuQuota
from samples.faults.observe import Observation, command
from samples.faults.runner import Interrupted, disturbed, held, signals_as_exceptions
from samples.faults.scenario import CannotBeMade, Conditions, Fixture, Job


def observation(*findings: dict[str, Any]) -> Observation:
    return Observation({"findings": list(findings)}, recording({}), Path("run"), 0, 1.0)


def neighbours(cores: float) -> dict[str, Any]:
    return {"rule": "CPU003", "evidence": [{"metric": "cpu.other_cores", "value": cores}]}


@pytest.mark.parametrize(
    ("fixtures", "findings", "said"),
    [
        ((), (), False),
        ((), (neighbours(0.6),), True),
        ((CpuQuota(1.0),), (neighbours(0.6),), True),
        ((Burners(1),), (), False),
        ((Burners(1),), (neighbours(1.1),), False),
        ((Burners(1),), (neighbours(1.4),), True),
        ((Burners(2),), (neighbours(2.1),), False),
        ((Burners(2),), ({"rule": "CPU002", "evidence": []},), True),
        ((), ({"rule": "DAT003", "evidence": []},), False),
    ],
)
def test_a_run_is_disturbed_by_neighbours_that_are_not_its_own(
    fixtures: tuple[Fixture, ...], findings: tuple[dict[str, Any], ...], said: bool
) -> None:
    assert disturbed(fixtures, observation(*findings)) is said


@dataclass(frozen=True)
class Noted:
    """A fixture that writes down when it comes and goes."""

    name: str
    log: list[str]
    possible: bool = True

    @contextlib.contextmanager
    def hold(self, folder: Path) -> Iterator[Conditions]:
        if not self.possible:
            raise CannotBeMade(f"no {self.name} here")
        self.log.append(f"+{self.name}")
        try:
            yield Conditions(container=(f"in-{self.name}",), prefix=(f"under-{self.name}",), values={self.name: "1"})
        finally:
            self.log.append(f"-{self.name}")


def test_fixtures_add_up_and_are_undone_in_turn(tmp_path: Path) -> None:
    log: list[str] = []
    with held((Noted("a", log), Noted("b", log)), tmp_path) as conditions:
        assert conditions.container == ("in-a", "in-b")
        assert conditions.prefix == ("under-a", "under-b")
        assert conditions.values == {"a": "1", "b": "1"}
    assert log == ["+a", "+b", "-b", "-a"]


def test_what_was_made_before_a_fixture_that_cannot_be_made_is_undone(tmp_path: Path) -> None:
    log: list[str] = []
    with (
        pytest.raises(CannotBeMade, match="no b here"),
        held((Noted("a", log), Noted("b", log, possible=False)), tmp_path),
    ):
        raise AssertionError("never entered")
    assert log == ["+a", "-a"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, RuntimeError])
def test_an_interrupted_job_leaves_no_fixture(tmp_path: Path, error: type[BaseException]) -> None:
    log: list[str] = []
    with pytest.raises(error), held((Noted("a", log),), tmp_path):
        raise error
    assert log == ["+a", "-a"]


def test_the_container_goes_around_the_advisor_and_the_prefix_around_the_job(tmp_path: Path) -> None:
    conditions = Conditions(container=("unshare",), prefix=("ip", "netns"), values={"disk": "/d"})
    words = command(Job("train.py", ("--data={disk}", "--output={out}"), ranks=2), conditions, tmp_path)
    places = [
        next(n for n, word in enumerate(words) if word.endswith(name))
        for name in ("unshare", "rn50-advisor", "--", "netns", "torchrun", "train.py")
    ]
    assert places == sorted(places)
    assert words[-2:] == ["--data=/d", f"--output={tmp_path / 'out'}"]
    assert "--nproc_per_node=2" in words


def test_the_first_signal_interrupts_and_the_next_one_lets_the_clean_up_finish() -> None:
    cleaned = False
    with pytest.raises(Interrupted, match="SIGTERM"), signals_as_exceptions():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            cleaned = True
    assert cleaned
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
