"""Support for the screen's tests: scripted sources, a real child process as the job, and the text that a user sees. Not a test."""

from __future__ import annotations

import html
import re
import signal
import subprocess
import sys
from collections import defaultdict
from contextlib import asynccontextmanager

from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.run.launch.output_lines import NewOutput
from rn50_advisor.advisor.tui.app import AdvisorApp

SIZES = [(80, 24), (100, 30), (140, 45), (200, 60)]


class Reports:
    """Returns the given reports, one per poll; raises the given exceptions."""

    def __init__(self, *steps: Report | Exception | None) -> None:
        self.steps = list(steps)
        self.polls = 0

    def poll(self) -> Report | None:
        self.polls += 1
        step = self.steps.pop(0) if self.steps else None
        if isinstance(step, Exception):
            raise step
        return step


class Lines:
    """Output lines in the form of a log's tail."""

    def __init__(self, *lines: str) -> None:
        self.lines = list(lines)
        self.reads = 0
        self._last_line: dict[int, str] = {}

    def lines_since(self, n: int) -> NewOutput:
        self.reads += 1
        last = self.lines[n - 1] if 0 < n <= len(self.lines) else None
        rewritten = (last,) if last is not None and self._last_line.get(n) != last else ()
        new = tuple(self.lines[n:])
        self._last_line = {len(self.lines): self.lines[-1]} if self.lines else {}
        return NewOutput(len(self.lines), new, rewritten)


class Replay(Reports):
    """A replay whose clock stands still."""

    def __init__(self, *steps: Report | Exception | None, duration_s: float = 100.0) -> None:
        super().__init__(*steps)
        self.position_s = 30.0
        self.duration_s = duration_s
        self.speed = 1.0
        self.paused = False

    def seek(self, s: float) -> None:
        self.position_s = min(max(s, 0.0), self.duration_s)


class Child:
    """A real process under JobControls; it ignores the `stubborn` signals."""

    def __init__(self, *stubborn: str) -> None:
        ignore = "".join(f"signal.signal(signal.{name}, signal.SIG_IGN);" for name in stubborn)
        code = f"import signal, sys; {ignore} print('ready', flush=True); sys.stdin.read()"
        self.sent: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        assert self.process.stdout
        assert self.process.stdout.readline() == b"ready\n"

    def interrupt(self) -> None:
        self.sent.append("SIGINT")
        self.process.send_signal(signal.SIGINT)

    def terminate(self) -> None:
        self.sent.append("SIGTERM")
        self.process.terminate()

    def kill(self) -> None:
        self.sent.append("SIGKILL")
        self.process.kill()

    def running(self) -> bool:
        return self.process.poll() is None

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


@asynccontextmanager
async def shown(source, size=(100, 30), **options):
    """Yields the app with its first report on the screen, and its pilot."""
    app = AdvisorApp(source, poll_s=options.pop("poll_s", 0.05), **options)
    async with app.run_test(size=size, notifications=True) as pilot:
        await settle(app, pilot)
        yield app, pilot


async def settle(app: AdvisorApp, pilot) -> None:
    await app.workers.wait_for_complete()
    await pilot.pause()
    await pilot.pause()


async def until(pilot, condition, seconds: float = 20.0) -> None:
    """Waits until the condition holds; fails after a deadline."""
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await pilot.pause(0.02)
    raise AssertionError(f"not within {seconds} s")


def screen_lines(app: AdvisorApp) -> list[str]:
    """Returns the screen's text, line by line, from its SVG export."""
    svg = app.export_screenshot()
    rows: dict[int, list[tuple[float, str]]] = defaultdict(list)
    pattern = r'<text class="[^"]*-r\d+" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>'
    for x, y, text in re.findall(pattern, svg):
        rows[round(float(y) * 10)].append((float(x), html.unescape(text).replace("\xa0", " ")))
    lines = []
    for _, parts in sorted(rows.items()):
        shown_line = ""
        for x, text in sorted(parts):
            shown_line = shown_line.ljust(round(x / 12.2)) + text
        lines.append(shown_line.rstrip())
    return lines


def screen_text(app: AdvisorApp) -> str:
    return "\n".join(screen_lines(app))
