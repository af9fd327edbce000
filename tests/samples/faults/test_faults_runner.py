"""Decisions of the runner: whose neighbours disturb a measurement, and what fixtures bring together."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import pytest
import samples.faults.__main__ as suite
from samples.faults import runner
from samples.faults.fixtures import CGROUP, Burners, CpuQuota, SlowLoopback
from samples.faults.neighbours import Neighbours
from samples.faults.observe import Observation, command, launcher
from samples.faults.runner import (
    SHARED_WITHIN_S,
    Bench,
    Interrupted,
    disturbed,
    held,
    promised,
    run_with_fix,
    signals_as_exceptions,
    slower_by,
)
from samples.faults.scenario import CannotBeMade, Conditions, Fixture, Job, Remedy, Scenario, Truth, Untouched
from samples.faults.score import Result

from recordings import plan, recording
from rn50_advisor.advisor.model.findings import Saving
from rn50_advisor.advisor.verdict.likely_gain import errors_of, expected


def observation(*rules: str, cores: float = 0.0, stolen: float = 0.0) -> Observation:
    findings = [{"rule": rule, "evidence": []} for rule in rules]
    return Observation({"findings": findings}, recording({}), Path("run"), 0, 1.0, Neighbours(cores, stolen))


@pytest.mark.parametrize(
    ("fixtures", "seen", "expected"),
    [
        ((), observation(), False),
        ((), observation("CPU003", cores=0.6), True),
        ((), observation(cores=0.6), False),  # nobody had to wait for them
        ((), observation("CPU003", cores=0.1), False),  # a false alarm: there was nobody
        ((CpuQuota(1.0),), observation("CPU003", cores=0.6), True),
        ((Burners(1),), observation("CPU003", cores=1.1), False),
        ((Burners(1),), observation("CPU003", cores=1.4), True),
        ((Burners(2),), observation("CPU003", cores=2.1), False),
        ((Burners(2),), observation("CPU002", stolen=0.06), True),
        ((), observation("CPU002"), False),
        ((), observation("DAT003", cores=0.6), False),
    ],
)
def test_a_run_is_disturbed_by_neighbours_that_are_there_and_not_its_own(
    fixtures: tuple[Fixture, ...], seen: Observation, expected: bool
) -> None:
    assert disturbed(fixtures, seen) is expected


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


PYTHON = Path(sys.executable).name


@pytest.mark.parametrize(
    ("job", "names"),
    [
        (Job("train.py"), [PYTHON]),
        (Job("train.py", ranks=2), ["torchrun", "--standalone", "--nproc_per_node=2"]),
        (Job("train.py", ranks=2, start="one by one"), [PYTHON, "start_ranks.py", "2"]),
    ],
)
def test_a_job_is_started_as_it_says(job: Job, names: list[str]) -> None:
    assert [Path(word).name for word in launcher(job)] == names


def test_the_first_signal_interrupts_and_the_next_one_lets_the_clean_up_finish() -> None:
    cleaned, before = False, signal.getsignal(signal.SIGTERM)
    with pytest.raises(Interrupted, match="SIGTERM"), signals_as_exceptions():
        try:
            signal.raise_signal(signal.SIGTERM)
        finally:
            signal.raise_signal(signal.SIGINT)
            cleaned = True
    assert cleaned
    assert signal.getsignal(signal.SIGTERM) is before


JOB = Job("train.py", ("--steps=9",))


def scenario(name: str) -> Scenario:
    return Scenario(name=name, job=JOB, truth=Truth(roots=("DAT003",)), strength="clear")


@pytest.mark.parametrize(
    ("again", "repetition", "after_s", "others", "shared"),
    [
        (same := (JOB, ()), 0, 60.0, 0.0, True),
        (same, 0, SHARED_WITHIN_S + 1, 0.0, False),  # the machine may be another by then
        (same, 1, 60.0, 0.0, False),
        (same, 0, 60.0, 0.6, False),  # it was disturbed
        ((JOB, (CpuQuota(1.0),)), 0, 60.0, 0.0, False),
        ((replace(JOB, environment={"OMP_NUM_THREADS": "1"}), ()), 0, 60.0, 0.0, False),
    ],
)
def test_a_run_with_the_fix_is_shared_by_those_that_would_run_the_same_at_once(
    again: tuple[Job, tuple[Fixture, ...]],
    repetition: int,
    *,
    after_s: float,
    others: float,
    shared: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock = [1000.0]
    monkeypatch.setattr(runner.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(runner, "undisturbed", lambda *_, **__: (observation("CPU003", cores=others), 1))
    bench = Bench(Path("folder"))
    first, owner = run_with_fix(scenario("a"), JOB, (), bench, repetition=0)
    assert owner == "a"
    clock[0] += after_s
    second, owner = run_with_fix(scenario("b"), *again, bench, repetition=repetition)
    assert owner == ("a" if shared else "b") and (second is first) is shared


@pytest.mark.parametrize(("untouched", "by"), [((), 1.0), (("forward",), 0.9), (("backward",), 1.1)])
def test_runs_are_compared_by_what_the_fix_leaves_as_it_is(untouched: tuple[Untouched, ...], by: float) -> None:
    both = [recording({0: plan(60, forward=f, backward=b)}) for f, b in ((30, 60), (27, 66))]
    assert slower_by(both, untouched, 0) == pytest.approx(by)
    assert slower_by([both[0], recording({})], untouched, 0) == 1.0, "unknown without steps"


def test_a_remedy_is_held_against_the_advice_that_it_names() -> None:
    own, other = Saving((0.1, 0.2), (1.2, 1.4), "own"), Saving((0.3, 0.4), (1.7, 1.9), "another path")
    finding = {"rule": "COM001", "evidence": [], "saving": asdict(own)}
    report = {"findings": [finding], "verdict": {"rule": "COM001"}}
    seen = Observation(report, recording({}), Path("run"), 0, 1.0)
    assert promised(Remedy(job=JOB), seen) == own
    assert promised(Remedy(job=JOB, promise=lambda _: other), seen) == expected(other, errors_of("COM001"))
    assert promised(Remedy(job=JOB, promise=lambda _: None), seen) is None


def test_a_job_behind_a_slow_loopback_sees_the_same_control_groups(tmp_path: Path) -> None:
    try:
        with SlowLoopback("1gbit").hold(tmp_path) as conditions:
            look = ["ls", str(CGROUP)]
            inside = subprocess.run([*conditions.prefix, *look], capture_output=True, text=True, check=True).stdout
    except CannotBeMade as reason:
        pytest.skip(f"NO SLOW LOOPBACK HERE: {reason}")
    assert inside == subprocess.run(look, capture_output=True, text=True, check=True).stdout != ""


def test_an_advisor_that_fails_is_a_wrong_verdict_and_the_suite_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Result:
        raise KeyError("step.time_s")

    monkeypatch.setattr(suite, "run_scenario", fail)
    result = suite.run_once(scenario("b"), Bench(tmp_path), 1)
    assert (result.scenario, result.repetition, result.right) == ("b", 1, False)
    assert "KeyError: 'step.time_s'" in result.broken


def test_what_could_not_be_undone_ends_the_suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> Result:
        raise subprocess.CalledProcessError(1, "umount")

    monkeypatch.setattr(suite, "run_scenario", fail)
    with pytest.raises(subprocess.CalledProcessError):
        suite.run_once(scenario("b"), Bench(tmp_path), 0)
