"""Speed of the screen: a refresh with many ranks, and opening a long run.

    python tests/bench/screens.py write RUN [--steps 1000000] [--ranks 1]     makes a long run, as retention leaves it
    python tests/bench/screens.py open RUN       to the first report, in new processes with compiled modules as an installation has them
    python tests/bench/screens.py refresh        all views with 64 ranks, at three sizes

A refresh is the CPU time of the screen's own thread from a new report to the drawn screen, while every rank and GPU has new values.
"""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import os
import pty
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), *map(str, (ROOT / "tests" / "support").iterdir())]

from textual.pilot import Pilot  # noqa: E402

import report_samples  # noqa: E402
from rn50_advisor.advisor.model.history import GpuHistory, History, compared  # noqa: E402
from rn50_advisor.advisor.model.metrics import Sample  # noqa: E402
from rn50_advisor.advisor.model.recording import Process  # noqa: E402
from rn50_advisor.advisor.model.report import Report  # noqa: E402
from rn50_advisor.advisor.store.run_writer import RunWriter  # noqa: E402
from rn50_advisor.advisor.tui.app import AdvisorApp, keep_from_collections  # noqa: E402
from rn50_advisor.advisor.tui.panels.tab_bar import VIEWS  # noqa: E402
from rn50_advisor.probes.rank.layout import KIND_STEP  # noqa: E402
from store_rows import MS, T0_NS, step_row  # noqa: E402

SIZES = ((80, 24), (120, 36), (200, 56))
REFRESHES = 60
REPORTS = 3
NOISE = 0.04  # of each slice
GROUPING = ("ranks", "machine", "over-time")
OPENINGS = 7
STEP_MS = 100
SERIES = 100  # of a host with eight GPUs
ROWS, COLUMNS = 36, 120
FIRST_WORDS = b"waiting for the first step"  # of the report of a run's first moment
PATIENCE_S = 30.0
OPEN = """
import gc, sys, time
began = time.perf_counter()
from rn50_advisor.advisor import cli
gc.set_threshold(cli.COLLECT_AFTER)
from pathlib import Path
from typing import Any
from rn50_advisor.advisor.tui.report_source import ReplayedRun
import rn50_advisor.advisor.tui.app
import rn50_advisor.advisor.verdict.diagnose
imported = time.perf_counter()
source = ReplayedRun(Path(sys.argv[1]))
source.poll()
first = time.perf_counter()
source.seek(source.duration_s)
source.poll()
print(imported - began, first - imported, time.perf_counter() - first)
"""


def write(run: Path, steps: int, ranks: int) -> None:
    writer = RunWriter.create(run, meta={"name": run.name, "argv": ["train.py"], "started_ns": T0_NS, "exit_code": 0})
    for rank in range(ranks):
        writer.put_process(Process(100 + rank, "rank", rank, rank, None, 1, "python train.py", T0_NS))
    chance = random.Random(0)
    clock_ns = T0_NS
    for first in range(0, steps, 1000):
        for rank in range(ranks):
            rows, at_ns = [], clock_ns
            for step in range(first, min(first + 1000, steps)):
                rows.append(step_row(step, start_ns=at_ns, took_ns=STEP_MS * MS))
                at_ns += STEP_MS * MS
            writer.put_records(KIND_STEP, rank, rows)
        for second in range(0, STEP_MS, 10 if first < steps - 40_000 else 1):
            read = [Sample(f"gpu.reading_{n}", f"gpu:{n % 8}", chance.random()) for n in range(SERIES)]
            writer.put_samples(clock_ns + second * 1_000_000_000, read)
        clock_ns = at_ns
        for _ in range(4):
            writer.commit()
            writer.put_position(0, "forward", first, clock_ns)
    writer.put_meta(ended_ns=clock_ns)
    writer.close()
    print(f"{sum(file.stat().st_size for file in run.iterdir()) / 1e6:.0f} MB")


def opened(run: Path) -> None:
    """Prints medians: imports, first report of a replay, report of the whole run, and `watch` on a terminal until it shows the first."""
    took = []
    with tempfile.TemporaryDirectory() as compiled:
        changed = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": compiled, "TERM": "xterm-256color"}
        environment = {**os.environ, **changed, "PYTHONPATH": str(ROOT / "src")}
        for _ in range(1 + OPENINGS):
            done = subprocess.run(
                [sys.executable, "-c", OPEN, str(run)], check=True, capture_output=True, text=True, env=environment
            )
            took.append([*map(float, done.stdout.split()), drawn(run, environment)])
    for name, times in zip(
        ("imports", "first report", "report of the whole run", "`watch` until the first report is drawn"),
        zip(*took[1:], strict=True),  # the first compiled
        strict=True,
    ):
        print(f"{name}: median {statistics.median(times):.2f} s ({min(times):.2f} to {max(times):.2f})")


def drawn(run: Path, environment: dict[str, str]) -> float:
    """Seconds from the start of `rn50-advisor watch` until its terminal shows the first report."""
    began = time.perf_counter()
    pid, terminal = pty.fork()
    if pid == 0:
        _watch(run, environment)
    try:
        fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        seen = b""
        while FIRST_WORDS not in seen and time.perf_counter() < began + PATIENCE_S:
            seen += os.read(terminal, 65536)
        return time.perf_counter() - began
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        os.close(terminal)


def _watch(run: Path, environment: dict[str, str]) -> NoReturn:
    os.execve(sys.executable, [sys.executable, "-m", "rn50_advisor", "watch", str(run)], environment)


class Given:
    """A source of reports that the benchmark hands over itself."""

    def poll(self) -> Report | None:
        return None


def report(seed: int) -> Report:
    """A job of 64 ranks and 64 GPUs; all values differ from those of another seed."""
    chance = random.Random(seed)

    def curve(level: float) -> tuple[float, ...]:
        return tuple(level * (1 + NOISE * (2 * chance.random() - 1)) for _ in range(240))

    made = report_samples.many_ranks()
    ranks = tuple(replace(strip, step=strip.step + seed, step_s=0.1 + chance.random() / 100) for strip in made.ranks)
    gpus = tuple(report_samples.gpu(i, 90 + 10 * chance.random()) for i in range(64))
    numbers = range(len(ranks))
    history = compared(
        History(
            1.0,
            30.0,
            phases={
                "input_wait": curve(0.01),
                "forward": curve(0.03),
                "backward": curve(0.07),
                "comm_exposed": curve(0.01),
            },
            steps=dict.fromkeys(numbers, (300.0,) * 240),
            step_s={rank: curve(0.11) for rank in numbers},
            late_s={rank: curve(0.005) for rank in numbers},
            gpus=tuple(GpuHistory(i, curve(80), curve(1700), curve(60), curve(6e10)) for i in range(64)),
        )
    )
    return replace(made, ranks=ranks, gpus=gpus, history=history)


async def refresh() -> None:
    reports = [report(seed) for seed in range(REPORTS)]
    for size in SIZES:
        app = AdvisorApp(Given(), poll_s=3600)
        async with app.run_test(size=size) as pilot:
            app._receive_report(reports[0], "")
            keep_from_collections()  # as on a terminal after the first report
            for grouped in (True, False):
                for view in VIEWS if grouped else [view for view in VIEWS if view.id in GROUPING]:
                    app.action_show_view(view.id)
                    await pilot.pause()
                    took = [await refreshed(app, pilot, reports[n % REPORTS]) for n in range(1, REFRESHES + 1)]
                    rows = "" if grouped else ", a row for each"
                    name = f"{size[0]}x{size[1]} {view.id}{rows}"
                    p95 = statistics.quantiles(took, n=20)[-1]
                    print(f"{name}: median {statistics.median(took):.1f} ms, p95 {p95:.1f}, longest {max(took):.1f}")
                app.action_group_alike()


async def refreshed(app: AdvisorApp, pilot: Pilot[Any], new: Report) -> float:
    """Milliseconds."""
    began = time.thread_time()
    app._receive_report(new, "")
    await pilot.pause()
    return (time.thread_time() - began) * 1e3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("write", "open", "refresh"))
    parser.add_argument("run", nargs="?", type=Path)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--ranks", type=int, default=1)
    given = parser.parse_args()
    if given.what == "refresh":
        asyncio.run(refresh())
    elif given.what == "write":
        write(given.run, given.steps, given.ranks)
    else:
        opened(given.run)


if __name__ == "__main__":
    main()
