"""Calls that never return are ended: a reader of a hung mount, a group that takes all the time; nothing of either remains."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
from click.testing import CliRunner

from rn50_advisor.advisor.commands import triage as command
from rn50_advisor.advisor.model.documents.machine_triage import Triage, TriageGap
from rn50_advisor.advisor.triage import child_program, deadline, triage_runner
from rn50_advisor.advisor.triage.child_program import run_child
from rn50_advisor.advisor.triage.deadline import apart, as_they_come, within
from rn50_advisor.advisor.triage.found_checks import Found, Item, TriageOptions, fact
from rn50_advisor.advisor.triage.host.other_load import Watch
from rn50_advisor.advisor.triage.storage.folder_place import GOES_S


def test_an_answer_is_handed_on_and_so_is_an_error() -> None:
    assert within(60.0, lambda: 3) == 3
    with pytest.raises(OSError, match="gone"):
        within(60.0, lambda: (_ for _ in ()).throw(OSError("gone")))


def test_nobody_waits_longer_for_what_hangs() -> None:
    hangs = threading.Event()
    assert within(0.05, hangs.wait) is None
    hangs.set()


def hanging(folder: Path) -> Iterator[Item]:
    yield fact("x.pid", float(os.getpid()))
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # as deaf as a process that waits for a dead server
    (folder / "began").touch()
    time.sleep(600)


def test_a_group_that_hangs_is_ended_and_what_it_found_before_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deadline, "_ENDS_S", 0.05)
    found, gap = apart(lambda: hanging(tmp_path), "the disk", seconds=1.0)
    assert isinstance(found, Found) and isinstance(gap, TriageGap)
    assert gap.name == "the disk" and "1 s" in gap.reason
    with contextlib.suppress(psutil.NoSuchProcess):
        psutil.Process(int(found.check.value or 0)).wait(30)  # type: ignore[arg-type]


def test_a_group_is_made_in_another_process_and_comes_back_whole() -> None:
    items = apart(lambda: (fact(f"x.{n}", float(os.getpid())) for n in range(3)), "x", seconds=60.0)
    assert [item.check.name for item in items if isinstance(item, Found)] == ["x.0", "x.1", "x.2"]
    assert {item.check.value for item in items if isinstance(item, Found)} != {float(os.getpid())}


def test_a_process_that_dies_is_a_gap_after_what_it_found() -> None:
    def dies() -> Iterator[Item]:
        yield fact("x.y", 1.0)
        os.kill(os.getpid(), signal.SIGKILL)

    found, gap = apart(dies, "x", seconds=60.0)
    assert isinstance(found, Found) and isinstance(gap, TriageGap) and "exited" in gap.reason


def cannot_be_sent() -> Iterator[Item]:
    yield fact("x.y", 1.0)
    yield fact("x.z", lambda: None)  # type: ignore[arg-type]


def breaks() -> Iterator[Item]:
    yield fact("x.y", 1.0)
    raise ValueError("no lambda here")


@pytest.mark.parametrize("make", [cannot_be_sent, breaks])
def test_a_bug_of_ours_is_not_laid_to_the_kernel(make: Callable[[], Iterator[Item]]) -> None:
    found, gap = apart(make, "the disk", seconds=60.0)
    assert isinstance(found, Found) and isinstance(gap, TriageGap) and gap.name == "the disk"
    assert "Error" in gap.reason and "lambda" in gap.reason and "dmesg" not in gap.hint


def test_what_the_parent_does_at_its_end_the_fork_does_not(tmp_path: Path) -> None:
    def leaves() -> Iterator[Item]:
        yield fact("x.y", 1.0)
        raise SystemExit(3)

    try:
        apart(leaves, "x", seconds=60.0)
    finally:
        (tmp_path / str(os.getpid())).touch()
    assert [path.name for path in tmp_path.iterdir()] == [str(os.getpid())], "the fork came by here, too"


def test_an_interrupt_ends_what_a_group_has_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C comes to both processes, and ours asks the other to end on top of it."""
    (tmp_path / "probe.py").write_text(
        "import os, time\nprint('{\"pid\": %d}' % os.getpid(), flush=True)\ntime.sleep(600)\n"
    )
    monkeypatch.setattr(child_program, "_PROGRAMS", tmp_path)

    def on_result(result: dict[str, Any]) -> None:
        (tmp_path / "pid").write_text(str(result["pid"]))
        os.kill(os.getppid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)

    def measures() -> Iterator[Item]:
        run_child(sys.executable, "probe", {}, timeout_s=60.0, scratch=tmp_path, on_result=on_result)
        yield fact("x.y", 1.0)

    with pytest.raises(KeyboardInterrupt):
        apart(measures, "x", seconds=60.0)
    assert not psutil.pid_exists(int((tmp_path / "pid").read_text()))


def test_each_group_leaves_time_to_those_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of what is left for each, and all for the last; a folder of data that hangs is found before."""
    given: list[float] = []

    def seen(make: object, title: str, *, seconds: float) -> list[Item]:
        given.append(seconds - triage_runner._GRACE_S)
        return []

    monkeypatch.setattr(triage_runner, "IDLE_S", 0.0)
    monkeypatch.setattr(triage_runner, "apart", seen)
    monkeypatch.setattr(triage_runner, "within", lambda seconds, ask: None)
    monkeypatch.setattr(time, "monotonic", lambda: 1000.0)
    setting = TriageOptions(tmp_path, "python", tmp_path, until_s=1064.0)
    triage_runner.triage(setting, lambda *progress: None)
    assert given == [32.0] * (len(given) - 1) + [64.0] and len(given) == len(triage_runner._groups(Watch()))


def test_what_has_no_time_left_is_not_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each that hangs would take seconds to end: together more than there are."""

    def seen(make: object, title: str, *, seconds: float) -> list[Item]:
        raise AssertionError(title)

    monkeypatch.setattr(triage_runner, "IDLE_S", 0.0)
    monkeypatch.setattr(triage_runner, "apart", seen)
    found = triage_runner.triage(TriageOptions(tmp_path, "python", until_s=time.monotonic()), lambda *progress: None)
    late = [gap.name for gap in found.gaps if "time limit was reached" in gap.reason]
    assert late == [group.title for group in triage_runner._groups(Watch())]


def test_time_that_went_before_the_first_check_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow answers of folders count, and all earlier work; a user's time to answer a question does not."""
    now = [1000.0]
    given: list[TriageOptions] = []

    def examine(setting: TriageOptions, announce: object) -> Triage:
        given.append(setting)
        return triage_runner.conclude([])

    def slow_folders(data: object, scratch: object) -> None:
        now[0] += 9.0

    def thoughtful(*, yes: bool) -> bool:
        now[0] += 500.0
        return False

    monkeypatch.setattr(command, "_check_folders", slow_folders)
    monkeypatch.setattr(command, "_agreed", thoughtful)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: now[0]))
    monkeypatch.setattr(triage_runner, "triage", examine)
    for how, limit_s, thought_s in (
        ("--quick", triage_runner.QUICK_LIMIT_S, 0.0),
        ("--full", triage_runner.FULL_LIMIT_S, 500.0),
    ):
        now[0] = 1000.0
        done = CliRunner().invoke(command.triage, [how, "--scratch", str(tmp_path), "--python", sys.executable])
        assert done.exit_code == 0, done.output
        assert given[-1].until_s == 1000.0 + limit_s + thought_s


def test_items_come_until_one_does_not() -> None:
    hangs = threading.Event()

    def slow() -> Iterator[Item]:
        yield fact("x.y", 1.0)
        hangs.wait(600)
        yield fact("x.z", 2.0)

    late = fact("x.late", "no")
    assert list(as_they_come(slow, 0.2, lambda: late)) == [fact("x.y", 1.0), late]
    hangs.set()
    assert list(as_they_come(lambda: iter([late]), 60.0, lambda: fact("never", 0.0))) == [late]
    with pytest.raises(ValueError, match="no lambda here"):
        list(as_they_come(breaks, 60.0, lambda: late))


def test_a_quick_one_ends_within_two_minutes_whatever_hangs() -> None:
    """Its own limit, the grace of the last group, its process (asked, then ended), its folder; one second for the start."""
    assert triage_runner.QUICK_LIMIT_S + triage_runner._GRACE_S + 2 * deadline._ENDS_S + GOES_S + 1.0 <= 120.0
