"""The end of `run`: summary and reports, made in a child, whatever becomes of it."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import report_samples as samples
from rn50_advisor.advisor.commands import conclusion
from rn50_advisor.advisor.model.errors import NotARun
from rn50_advisor.advisor.model.recording import Recording
from rn50_advisor.advisor.model.report import Report
from rn50_advisor.advisor.report import perfetto, render
from rn50_advisor.advisor.store.run_summary import SUMMARY_NAME, read_summary
from written_runs import written_run

ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM)


@pytest.fixture(autouse=True)
def signals() -> Iterator[None]:
    """Afterwards none that would end us is heeded: the exit is all that comes."""
    before = {number: signal.getsignal(number) for number in ENDING}
    yield
    ignored = {number for number in ENDING if signal.getsignal(number) == signal.SIG_IGN}
    for number, handler in before.items():
        signal.signal(number, handler)
    assert ignored in (set(ENDING), {number for number in ENDING if before[number] == signal.SIG_IGN})


def diagnosis(recording: Recording) -> Report:
    report = samples.bottleneck()
    return replace(report, job=replace(report.job, name=recording.meta.name))


def doing(act: Callable[[], object]) -> Callable[[Recording], Report]:
    def judge(recording: Recording) -> Report:
        act()
        return diagnosis(recording)

    return judge


def failing(error: Exception) -> Callable[[], object]:
    def fail() -> None:
        raise error

    return fail


def test_reports_are_written_and_the_summary_names_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    conclusion.conclude(written_run(tmp_path / "run"), diagnosis, ["r.json", "r.txt"])
    printed = capfd.readouterr()
    assert printed.out == ""
    assert "▲ Bottleneck: Loading happens in the training process (DAT003)" in printed.err
    assert printed.err.endswith("report  r.json, r.txt\n") and (tmp_path / "r.json").exists()
    expected = replace(samples.bottleneck(), job=replace(samples.bottleneck().job, name="run"))
    assert (tmp_path / "r.txt").read_text() == render(expected, "text")


def test_a_trace_that_cannot_be_made_costs_no_other_report(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run, names = written_run(tmp_path / "run"), ["r.perfetto.json", "r.txt"]
    conclusion.conclude(run, diagnosis, names)
    assert capfd.readouterr().err.endswith(f"report  {', '.join(names)}\n")
    assert (tmp_path / "r.perfetto.json").read_text().endswith("]}\n")
    monkeypatch.setattr(perfetto, "trace_of", lambda *_: failing(NotARun("it is damaged"))())
    conclusion.conclude(run, diagnosis, names)
    printed = capfd.readouterr().err
    assert "the report r.perfetto.json could not be written: it is damaged" in printed
    assert printed.endswith("report  r.txt\n")


def test_the_verdict_is_kept_for_lists_of_runs(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    run = written_run(tmp_path / "run")
    conclusion.conclude(run, diagnosis, [])
    kept = read_summary(run)
    assert kept is not None and (kept.state, kept.rule, kept.started_unix_s) == ("bottleneck", "DAT003", 1.7e9)
    (run / SUMMARY_NAME).unlink()
    (run / SUMMARY_NAME).mkdir()  # so that none can be written
    conclusion.conclude(run, diagnosis, [])
    assert capfd.readouterr().err.count("▲ Bottleneck") == 2


def test_without_reports_the_summary_says_how_to_make_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    conclusion.conclude(written_run(tmp_path / "run"), diagnosis, [])
    assert "report  rn50-advisor report" in capfd.readouterr().err


def test_a_report_that_cannot_be_written_costs_the_others_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    files = [str(tmp_path / "none" / "r.html"), str(tmp_path / "r.md")]
    conclusion.conclude(written_run(tmp_path / "run"), diagnosis, files)
    printed = capfd.readouterr().err
    assert f"the report {files[0]} could not be written: No such file or directory" in printed
    assert "▲ Bottleneck" in printed and (tmp_path / "r.md").exists()


@pytest.mark.parametrize(
    ("act", "says"),
    [
        (failing(ZeroDivisionError("by\nzero")), "no summary: ZeroDivisionError: by zero; rn50-advisor report "),
        (failing(NotARun("it is damaged")), "no summary: it is damaged\n"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "no summary: it was killed by SIGKILL; rn50-advisor report "),
        (lambda: os._exit(7), "no summary: it ended with exit code 7; rn50-advisor report "),
        (lambda: os.kill(os.getpid(), signal.SIGTERM), "no summary: SIGTERM; rn50-advisor report "),
    ],
)
def test_whatever_fails_is_one_line(
    act: Callable[[], object], says: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    conclusion.conclude(written_run(tmp_path / "run"), doing(act), [])
    printed = capfd.readouterr().err
    assert printed.startswith(f"rn50-advisor: {says}") and printed.count("\n") == 1


def test_what_takes_too_long_is_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(conclusion, "LONGEST_S", 0.2)
    conclusion.conclude(written_run(tmp_path / "run"), doing(signal.pause), [])
    assert "no summary: it took more than 0 s" in capfd.readouterr().err


def test_a_signal_to_us_cuts_the_summary_short(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """In a process of one thread: a signal goes to any thread that does not block it."""
    run = written_run(tmp_path / "run")

    def concludes() -> None:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under `nohup` nothing would be seen
        parent = os.getpid()

        def asked_to_end() -> None:
            os.kill(parent, signal.SIGHUP)
            signal.pause()

        conclusion.conclude(run, doing(asked_to_end), [])

    child = multiprocessing.get_context("fork").Process(target=concludes)
    child.start()
    child.join(60.0)
    assert child.exitcode == 0
    assert "no summary: SIGHUP" in capfd.readouterr().err


@pytest.mark.parametrize("gone", ["closed", "none"])
def test_a_warning_without_a_stderr_is_no_error(
    gone: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", buffering=1) as broken:
        monkeypatch.setattr("sys.stderr", broken if gone == "closed" else None)
        conclusion.warn("nobody reads this")
        monkeypatch.undo()
        os.dup2(os.open(os.devnull, os.O_WRONLY), broken.fileno())
    assert capsys.readouterr().out == ""


def test_a_warning_is_one_harmless_line(capsys: pytest.CaptureFixture[str]) -> None:
    conclusion.warn("two\nlines \x1b[31mred " + "x" * 1000)
    printed = capsys.readouterr().err
    assert printed.startswith("rn50-advisor: two lines red xxx") and printed.count("\n") == 1 and len(printed) < 520
