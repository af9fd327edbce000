"""Collections of garbage are noted with their times and threads, and take no exception from the job's signal handlers."""

from __future__ import annotations

import gc
import random
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from rn50_advisor.probes.rank.garbage import EVENTS_MAX, Garbage

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def garbage() -> Iterator[Garbage]:
    made, known = Garbage(), gc.isenabled()
    gc.disable()
    made.listen()
    yield made
    made.stop()
    if known:
        gc.enable()


def test_collections_that_taking_them_begins_do_not_keep_it_at_it(garbage: Garbage) -> None:
    for _ in range(1000):
        gc.collect(0)
    thresholds = gc.get_threshold()
    gc.set_threshold(1)
    gc.enable()
    try:
        found = garbage.take(threading.get_ident())
    finally:
        gc.disable()
        gc.set_threshold(*thresholds)
    assert 1000 <= len(found) <= 2000


def test_each_collection_is_noted_once_with_its_time(garbage: Garbage) -> None:
    gc.collect()
    gc.collect(0)
    found = garbage.take(threading.get_ident())
    assert len(found) == 2 and garbage.take(threading.get_ident()) == []
    times = [time for pair in found for time in pair]
    assert times == sorted(times) and times[0] < times[-1]


def test_those_of_other_threads_are_left_out(garbage: Garbage) -> None:
    other = threading.Thread(target=gc.collect)
    other.start()
    other.join()
    gc.collect()
    assert len(garbage.take(threading.get_ident())) == 1


def test_what_is_under_way_is_known_and_told_once_it_has_ended(garbage: Garbage) -> None:
    seen: list[object] = []

    class Finalised:
        def __del__(self) -> None:
            seen.append((garbage.under_way, garbage.take(threading.get_ident())))

    ring = Finalised()
    ring.itself = ring  # type: ignore[attr-defined]
    del ring
    gc.collect()
    assert seen == [(True, [])]
    assert not garbage.under_way and len(garbage.take(threading.get_ident())) == 1


def test_of_very_many_the_last_are_kept_and_halves_are_dropped(garbage: Garbage) -> None:
    garbage.events.append((1, threading.get_ident(), False))
    for _ in range(EVENTS_MAX):
        gc.collect(0)
    assert len(garbage.events) == EVENTS_MAX
    garbage.events.popleft()
    assert len(garbage.take(threading.get_ident())) == EVENTS_MAX // 2 - 1


class Limit(Exception):
    """The job's own."""


def test_what_a_signal_handler_raises_amid_collections_reaches_the_job(garbage: Garbage) -> None:
    """In a callback written in Python most of these were lost."""
    lost: list[object] = []
    hook, sys.unraisablehook = sys.unraisablehook, lost.append
    before = signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(Limit()))
    gc.freeze()  # what other tests have imported makes each collection a hundred times as long; it stays frozen for those to come
    kept = [[number] for number in range(200_000)]  # so that nearly all of the time is a collection's
    try:
        for number in range(20):
            signal.setitimer(signal.ITIMER_REAL, 0.01 + 0.01 * random.Random(number).random())
            with pytest.raises(Limit):
                for _ in range(2000):
                    gc.collect()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        sys.unraisablehook = hook
    assert lost == [] and len(kept) == 200_000


def test_the_recorder_leaves_no_other_callback_with_the_collector(tmp_path: Path) -> None:
    """Whatever is written in Python there could take an exception from the job."""
    code = """
        import functools, gc
        before = set(map(id, gc.callbacks))
        import torch
        ours = [callback for callback in gc.callbacks if id(callback) not in before]
        print([type(callback) is functools.partial and callback.func is getattr for callback in ours])
    """
    run = [
        sys.executable,
        "-m",
        "rn50_advisor.advisor.cli",
        "run",
        "--no-tui",
        "--run-dir",
        str(tmp_path / "run"),
        "--",
    ]
    done = subprocess.run(
        [*run, sys.executable, "-c", textwrap.dedent(code)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "[True]" in done.stdout.splitlines()
