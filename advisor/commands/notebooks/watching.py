"""`watch()`: records a part of the running process, and the result, which shows itself as text or in a notebook."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
from collections.abc import Callable
from contextlib import ContextDecorator, ExitStack
from html import escape
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from rn50_advisor.advisor.commands.notebooks import recorder_inside
from rn50_advisor.advisor.commands.notebooks.keeper_handle import RunKeeper
from rn50_advisor.advisor.run.companion import warn
from rn50_advisor.advisor.run.launch.job_end import describe_error

if TYPE_CHECKING:
    from rn50_advisor.advisor.model.report import Report

_RUNS = "runs"
_RUN_DIR_VARIABLE = "RN50_ADVISOR_RUN_DIR"
_HEIGHT_PX = 640
_UNDER_ADVISOR = "watch() does nothing: this process is being recorded already"
_OTHER_RANK = "watch() does nothing in rank {rank} of {ranks}: rn50-advisor run -- torchrun ... records all of them"


class WatchedRun:
    """A recorded run: `str` is its summary, a notebook shows its page."""

    def __init__(self, run: Path | None, why_not: str = "") -> None:
        """`why_not`: why there is no run, if there is none."""
        self.run = run
        self.why_not = why_not
        self._just_recorded = False

    def recorded_into(self, run: Path) -> None:
        self.run, self._just_recorded = run, True

    @functools.cached_property
    def report(self) -> Report:
        """The report, as `rn50-advisor report` makes it. Raises NotARun if nothing was recorded."""
        # the analysis is loaded when somebody wants to see it, not beside the training
        from rn50_advisor.advisor.config_file import load_config
        from rn50_advisor.advisor.merge.job_reading import read_job
        from rn50_advisor.advisor.model.errors import NotARun
        from rn50_advisor.advisor.store.run_summary import summary_of, write_summary
        from rn50_advisor.advisor.verdict.diagnose import diagnose

        if self.run is None:
            raise NotARun(self.why_not or "nothing has been recorded yet")
        recording = read_job(self.run)
        made = diagnose(recording, load_config(None))
        if self._just_recorded:
            with contextlib.suppress(OSError):
                write_summary(self.run, summary_of(made, recording))  # for lists of runs, as `run` does at its end
        return made

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Writes the report; the name's end says how: .html, .md, .json or .txt. Raises UsageError, NotARun and OSError."""
        from rn50_advisor.advisor.report import write

        write(self.report, os.fspath(path))
        return Path(path)

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.run or self.why_not or 'not recorded yet'}>"

    def __str__(self) -> str:
        from rn50_advisor.advisor.report import text_page

        return text_page.render(self.report) if self.run is not None else repr(self)

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What IPython shows in a terminal."""
        printer.text(repr(self) if cycle else str(self))

    def _repr_html_(self) -> str:
        """What a notebook shows: the HTML page in a frame of its own, whose scripts and styles cannot reach the notebook's."""
        from rn50_advisor.advisor.report import render

        if self.run is None:
            return f"<pre>{escape(repr(self))}</pre>"
        page = escape(render(self.report, "html"), quote=True)
        return (
            f'<iframe title="rn50-advisor report" sandbox="allow-scripts allow-popups" allow="clipboard-write" srcdoc="{page}" '
            f'style="width: 100%; height: {_HEIGHT_PX}px; border: 1px solid #8884"></iframe>'
        )


class Watching(ContextDecorator):
    """Records what runs inside `with`, or in the decorated function. Whatever goes wrong with that is one line; the training goes on."""

    def __init__(self, *, name: str = "", run_dir: str | os.PathLike[str] | None = None) -> None:
        self._name = name
        self._run_dir = Path(run_dir if run_dir is not None else os.environ.get(_RUN_DIR_VARIABLE) or _RUNS)
        self.watched = WatchedRun(None)
        self._entered: list[RunKeeper | None] = []  # None: that time nothing is recorded
        self._open = ExitStack()
        self._pid = 0

    def _recreate_cm(self) -> Watching:
        """Each call of a decorated function is a run of its own."""
        return Watching(name=self._name, run_dir=self._run_dir)

    def __enter__(self) -> WatchedRun:
        why_not = _why_not()
        watched = self.watched = WatchedRun(None, why_not)
        self._entered.append(None)
        self._pid = os.getpid()
        if why_not:
            warn(why_not)
            return watched
        try:
            keeper = self._entered[-1] = RunKeeper(name=self._name, run_dir=self._run_dir.absolute())
            self._open.enter_context(recorder_inside.children_recorded(keeper.place.rings))
            recorder_inside.start(keeper.place.rings)
        except Exception as error:  # noqa: BLE001 - the wall: what is watched runs as it would without
            self._give_up(watched, f"nothing is recorded: {describe_error(error)}")
        return watched

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        keeper = self._entered.pop()
        if keeper is None or os.getpid() != self._pid:
            return  # a forked child that leaves the block ends its own part, not the recording
        try:
            self._finish(keeper, error)
        except Exception as failure:  # noqa: BLE001 - the body's own end is what counts
            self._entered.append(keeper)
            self._give_up(self.watched, f"the recording is incomplete: {describe_error(failure)}")
            self._entered.pop()

    def _finish(self, keeper: RunKeeper, error: BaseException | None) -> None:
        number = signal.SIGINT if isinstance(error, KeyboardInterrupt) else None
        if number is not None:
            keeper.asked_to_end(number)
        try:
            recorder_inside.stop(error)
        finally:
            self._open.close()
            failed = error is not None and number is None and not isinstance(error, (SystemExit, GeneratorExit))
            recorded, complaint = keeper.finish(exit_code=1 if failed else None, number=number)
        if recorded:
            self.watched.recorded_into(keeper.place.run)
            warn(f"recorded: rn50-advisor report {_shown(keeper.place.run)}")
        if complaint or not recorded:
            self.watched.why_not = complaint or "nothing was recorded"
            warn(self.watched.why_not)

    def _give_up(self, watched: WatchedRun, reason: str) -> None:
        """Takes the recorder out of use, and leaves the keeper to end by itself."""
        warn(reason)
        watched.why_not = reason
        with contextlib.suppress(Exception):
            recorder_inside.stop(None)
        self._open.close()
        keeper, self._entered[-1] = self._entered[-1], None
        if keeper is not None:
            keeper.close()


def _why_not() -> str:
    """Why this process is not to be recorded; empty if it is."""
    if recorder_inside.runs_under_advisor():
        return _UNDER_ADVISOR
    rank, ranks = os.environ.get("RANK", "0"), os.environ.get("WORLD_SIZE", "1")
    return _OTHER_RANK.format(rank=rank, ranks=ranks) if rank != "0" and ranks != "1" else ""


def _shown(run: Path) -> str:
    """The path as one types it here."""
    with contextlib.suppress(ValueError, OSError):
        return os.fspath(run.relative_to(Path.cwd()))
    return os.fspath(run)


def watched_run(run: str, run_dir: str | os.PathLike[str] | None, resolve: Callable[[str, Path], Path]) -> WatchedRun:
    """A run that exists. Raises NotARun."""
    return WatchedRun(
        resolve(run, Path(run_dir if run_dir is not None else os.environ.get(_RUN_DIR_VARIABLE) or _RUNS))
    )
