"""The tools that start a job: `run` records one, `try` measures the advised fixes on it. Offered only where a person allowed it."""

from __future__ import annotations

import contextlib
import json
import math
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Event, Lock
from typing import Annotated, Any

import msgspec

from rn50_advisor.advisor.commands.agents.agent_jobs import AgentJob, Ending
from rn50_advisor.advisor.commands.agents.tool_calls import Arguments, Tool, ToolAnswer, failure, paragraph
from rn50_advisor.advisor.commands.agents.verdict_tools import (
    Shelf,
    judged,
    verdict_document,
    verdict_words,
)
from rn50_advisor.advisor.model.errors import AdvisorError, UsageError
from rn50_advisor.advisor.run.rings.own_folder import private_folder

_PREFIX = "rn50-agent-job-"
_TAIL_LINES_TOLD = 4

Command = Annotated[
    str,
    msgspec.Meta(
        min_length=1,
        description="The command line of the training job, as typed: `python train.py --epochs 1`. Words are split as a shell "
        "does; nothing else of a shell works (no pipes, no variables).",
    ),
]
WorkingFolder = Annotated[str, msgspec.Meta(description="The job's working directory. Left out: that of this server.")]


class RunJob(Arguments, frozen=True):
    command: Command
    time_limit_s: Annotated[
        float,
        msgspec.Meta(ge=5, le=86_400, description="The job is stopped after so many seconds, as by Ctrl-C."),
    ] = 300.0
    name: Annotated[str, msgspec.Meta(max_length=60, description="Name of the run.")] = "agent"
    folder: WorkingFolder = ""


class TryFixes(Arguments, frozen=True):
    command: Command
    run: Annotated[
        str,
        msgspec.Meta(
            description="The recorded run of this job whose advice is tried. Left out: a short run is made first."
        ),
    ] = ""
    fixes: Annotated[
        list[str],
        msgspec.Meta(max_length=20, description="Rules whose fixes to try. Left out: all that promise a gain."),
    ] = msgspec.field(default_factory=list)
    budget_s: Annotated[
        float, msgspec.Meta(ge=30, le=86_400, description="How long all trials together may take, in seconds.")
    ] = 600.0
    folder: WorkingFolder = ""


class JobDesk:
    """Runs one job at a time: two would disturb each other's measurements."""

    def __init__(self, shelf: Shelf) -> None:
        self._shelf = Shelf(shelf.run_dir.absolute(), shelf.config and shelf.config.absolute())
        self._one = Lock()
        self._job: AgentJob | None = None

    def tools(self) -> list[Tool]:
        return [
            Tool(
                "run",
                "Record a training job",
                "Runs a training job under observation and gives its verdict. Use it to get a first verdict, and again "
                "after a change, with the same command, to compare. A minute or two of training is enough.",
                RunJob,
                self.run,
                runs_jobs=True,
            ),
            Tool(
                "try",
                "Measure the advised fixes",
                "Applies the advised fixes to a job from outside, without editing a file, and measures what each brings. "
                "Use it before you edit code, to know which fix is worth it. Takes minutes.",
                TryFixes,
                self.try_,
                runs_jobs=True,
                gives="try",
            ),
        ]

    def interrupt(self) -> None:
        """Ctrl-C for the job that runs, if any. Safe in a signal handler."""
        if (job := self._job) is not None:
            job.interrupt()

    def run(self, taken: RunJob, stop: Event) -> ToolAnswer:
        from rn50_advisor.advisor.report import text

        shelf = self._shelf
        with self._alone() as scratch:
            report = scratch / "report.json"
            own = ["run", "--no-tui", f"--run-dir={shelf.run_dir}", f"--name={taken.name}", f"--report={report}"]
            command = [*own, *self._config(), "--", *_words(taken.command)]
            ending, output = self._watched(command, scratch, taken.folder, taken.time_limit_s, stop)
            folder = _run_of(_document(report), shelf.run_dir)
        about: dict[str, Any] = {"exit_code": ending.exit_code, "stopped": ending.stopped, "output": output}
        if folder is None:
            return failure(f"no verdict: {_last_words(output)}", _what_to_do(ending), about)
        path, judgement = judged(shelf, str(folder))
        about["output"] = _without_summary(output, text.summary(judgement, str(report), str(folder)))
        asked = f"Stopped at the time limit of {taken.time_limit_s:g} s" if ending.stopped else ""
        document = {**verdict_document(judgement, path), **about}
        return ToolAnswer(paragraph(f"Recorded as {folder.name}", asked, verdict_words(judgement)), document)

    def try_(self, taken: TryFixes, stop: Event) -> ToolAnswer:
        from rn50_advisor.advisor.merge.job_reading import resolve_job
        from rn50_advisor.advisor.model import trials
        from rn50_advisor.advisor.model.wording import trial_words
        from rn50_advisor.advisor.store.secrets.masking import redact_argv

        shelf = self._shelf
        advised = [str(resolve_job(taken.run, shelf.run_dir).absolute())] if taken.run else []
        with self._alone() as scratch:
            result = scratch / "tried.json"
            own = ["try", *advised, f"--run-dir={shelf.run_dir}", f"--budget={taken.budget_s:.0f}s", "--format=json"]
            fixes = [f"--fix={','.join(taken.fixes)}"] if taken.fixes else []
            command = [*own, f"--output={result}", *fixes, *self._config(), "--", *_words(taken.command)]
            ending, output = self._watched(command, scratch, taken.folder, math.inf, stop)
            document = _document(result)
        if document is None:
            about = {"exit_code": ending.exit_code, "stopped": ending.stopped, "output": output}
            return failure(f"nothing was tried: {_last_words(output)}", _what_to_do(ending), about)
        tried = trials.from_json(document)
        document["job"]["argv"] = redact_argv(tried.argv)
        told = [
            f"{trial.rule} {trial.knob}: {trial_words.OUTCOME_WORDS[trial.outcome][1]}"
            + (f" {trial_words.measured(trial.measured)}" if trial.measured else "")
            for trial in tried.trials
            if trial is not tried.best
        ]
        words = paragraph(
            trial_words.headline(tried), "; ".join(told), trial_words.speed(tried), trial_words.together(tried)
        )
        return ToolAnswer(words, document)

    def _watched(
        self, arguments: Sequence[str], scratch: Path, folder: str, limit_s: float, stop: Event
    ) -> tuple[Ending, str]:
        self._job = job = AgentJob(arguments, folder=_folder(folder), output=scratch / "output.log")
        ending = job.wait(limit_s, stop)
        output = job.tail()
        if ending.exit_code is None:
            raise AdvisorError(
                f"the job did not end, neither on Ctrl-C nor on SIGTERM, and still runs as process {job.pid}",
                f"to end it: kill -KILL -- -{job.pid}; its run can be read all the same",
            )
        return ending, output

    @contextlib.contextmanager
    def _alone(self) -> Iterator[Path]:
        """A private folder for the one job. Raises UsageError while another runs."""
        if not self._one.acquire(blocking=False):
            raise UsageError(
                "another job is running: two would disturb each other", "wait for its answer, or cancel it"
            )
        try:
            if self._job is not None and self._job.running():
                raise UsageError(f"the job before has not ended: process {self._job.pid}", "end that one first")
            with private_folder(_PREFIX) as scratch:
                yield scratch
        finally:
            self._one.release()

    def _config(self) -> list[str]:
        return [f"--config={self._shelf.config}"] if self._shelf.config is not None else []


def _words(command: str) -> list[str]:
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise UsageError(f"the command line cannot be split into words: {error}", "quote it as for a shell") from error
    if not words:
        raise UsageError("the command line is empty", "give the job as it is typed: python train.py")
    return words


def _folder(given: str) -> Path:
    folder = Path(given).expanduser() if given else Path.cwd()
    if not folder.is_dir():
        raise UsageError(f"{given} is no folder", "give the folder that the job is started in")
    return folder


def _document(file: Path) -> dict[str, Any] | None:
    """What the command wrote; None where it wrote nothing."""
    try:
        found = json.loads(file.read_bytes())
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) else None


def _run_of(report: dict[str, Any] | None, run_dir: Path) -> Path | None:
    """The run that the report is of: the one that started in the same moment."""
    from rn50_advisor.advisor.model.errors import NotARun
    from rn50_advisor.advisor.store.run_folders import list_runs
    from rn50_advisor.advisor.store.run_summary import read_times

    started = report["environment"].get("started") if report is not None else None
    for folder in list_runs(run_dir) if started is not None else ():
        with contextlib.suppress(NotARun):
            if read_times(folder).started_unix_s == started:
                return folder
    return None


def _without_summary(output: str, summary: str) -> str:
    """What the job printed, without our own last words: the verdict says the same."""
    return output.rstrip().removesuffix(summary.rstrip()).rstrip()


def _last_words(output: str) -> str:
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return "; ".join(lines[-_TAIL_LINES_TOLD:]) or "the job printed nothing"


def _what_to_do(ending: Ending) -> str:
    if ending.stopped:
        return "give it more time"
    return f"it ended with {ending.exit_code}: see its output, and correct the command"
