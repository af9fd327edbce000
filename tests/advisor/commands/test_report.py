"""The command `report`: which run, in which format, and where to."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rn50_advisor.advisor.commands.report import report
from rn50_advisor.advisor.model.errors import AdvisorError, NotARun, UsageError
from rn50_advisor.advisor.tui import outside_programs
from traced_loops import traced_loop, written_trace
from written_runs import written_run


@pytest.fixture
def runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two runs, and a working directory without any configuration."""
    monkeypatch.chdir(tmp_path)
    written_run(tmp_path / "runs" / "20250101-000000-first", steps=60)
    written_run(tmp_path / "runs" / "20250102-000000-second", steps=80)
    return tmp_path / "runs"


def invoked(*arguments: object) -> Result:
    return CliRunner().invoke(report, [str(argument) for argument in arguments])


@pytest.mark.parametrize(("run", "steps"), [((), 80), (("first",), 60), (("runs/20250101-000000-first",), 60)])
def test_the_latest_run_is_shown_unless_another_is_named(runs: Path, run: tuple[str, ...], steps: int) -> None:
    done = invoked(*run, "--format", "json")
    assert json.loads(done.stdout)["step_time"]["steps"] == steps


def test_a_files_name_chooses_the_format(runs: Path, tmp_path: Path) -> None:
    done = invoked("-o", tmp_path / "r.html")
    assert (done.exit_code, done.stdout) == (0, "")
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert invoked("-o", tmp_path / "plain").exit_code == 0
    assert (tmp_path / "plain").read_text().startswith("rn50-advisor report")


@pytest.mark.parametrize(
    ("name", "given"), [("r.perfetto.json", ()), ("r.perfetto.json.gz", ()), ("r.x", ("--format", "perfetto"))]
)
def test_a_trace_is_written_by_name_or_format(runs: Path, tmp_path: Path, name: str, given: tuple[str, ...]) -> None:
    done = invoked(*given, "-o", tmp_path / name)
    assert (done.exit_code, done.stdout) == (0, "")
    content = (tmp_path / name).read_bytes()
    trace = json.loads(gzip.decompress(content) if name.endswith(".gz") else content)
    assert sum(event.get("cat") == "step" for event in trace["traceEvents"]) == 80
    assert trace["otherData"]["schema"] == "rn50-advisor/perfetto/1"


def test_a_trace_goes_to_stdout_too(runs: Path) -> None:
    assert json.loads(invoked("--format", "perfetto").stdout)["traceEvents"]


def test_a_trace_that_cannot_be_written_is_one_line(runs: Path, tmp_path: Path) -> None:
    error = invoked("-o", tmp_path / "none" / "r.perfetto.json").exception
    assert isinstance(error, AdvisorError)
    assert "No such file" in error.message


def test_the_trace_of_a_profilers_run_is_in_its_own_file(runs: Path, tmp_path: Path) -> None:
    path = written_trace(tmp_path / "t.json", traced_loop())
    trace = json.loads(invoked(path, "--format", "perfetto").stdout)
    assert any(event.get("cat") == "step" for event in trace["traceEvents"])


def test_a_configuration_is_judged_by(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "own.toml").write_text('disable = ["LOP003"]\n')
    judged = [
        {row["rule"] for row in json.loads(invoked("--format", "json", *given).stdout)["outcomes"]}
        for given in ((), ("--config", tmp_path / "own.toml"))
    ]
    assert judged[0] - judged[1] == {"LOP003"}


def test_what_is_no_run_is_said(tmp_path: Path) -> None:
    done = invoked("none", "--run-dir", tmp_path)
    assert isinstance(done.exception, NotARun) and done.exception.exit_code == 2


def test_traces_of_a_profiler_are_reported_like_a_run(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "traces"
    paths = [written_trace(folder / f"rank{rank}.json.gz", traced_loop(exchange=1_000.0)) for rank in (0, 1)]
    done = invoked(paths[0], "--format", "json")
    assert json.loads(done.stdout)["job"]["traced"]
    reports = [json.loads(invoked(*chosen, "--format", "json").stdout) for chosen in (paths, [folder])]
    assert [report["job"]["ranks"] for report in reports] == [2, 2]
    for format_, mark in (("md", "# "), ("html", "<!DOCTYPE html>"), ("text", "rn50-advisor report")):
        assert invoked(*paths, "--format", format_).stdout.startswith(mark)


def test_several_runs_are_no_traces(runs: Path) -> None:
    error = invoked("first", "second").exception
    assert isinstance(error, UsageError)
    assert "compare" in error.hint


def test_a_damaged_trace_is_not_a_run(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text('{"traceEvents": [{"ph": "X", "cat": ')
    error = invoked(tmp_path / "t.json").exception
    assert isinstance(error, NotARun)
    assert error.exit_code == 2


def test_text_is_one_page_unless_all_of_it_is_wanted(runs: Path, tmp_path: Path) -> None:
    page, full = invoked().stdout, invoked("--full").stdout
    assert len(page.splitlines()) <= 40 < len(full.splitlines())
    assert "ADVISOR OVERHEAD" in full and "ADVISOR OVERHEAD" not in page
    invoked("-o", tmp_path / "page.txt")
    invoked("--full", "-o", tmp_path / "full.txt")
    assert (tmp_path / "page.txt").read_text() == page
    assert (tmp_path / "full.txt").read_text() == full


def opened_by(browser: bool, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Stands in for the browser, or for a machine without one."""
    pages: list[str] = []
    monkeypatch.setattr(outside_programs, "open_page", lambda page: pages.append(page.absolute().as_uri()) or browser)
    return pages


@pytest.mark.parametrize("browser", [True, False])
def test_the_page_is_opened_and_without_a_browser_its_path_is_told(
    browser: bool, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pages = opened_by(browser, monkeypatch)
    done = invoked("first", "--open")
    page = runs / "20250101-000000-first" / "report.html"
    assert page.read_text().startswith("<!DOCTYPE html>")
    assert pages == [page.resolve().as_uri()]
    assert str(page.relative_to(runs.parent)) in done.stdout and ("no browser" in done.stdout) is not browser


def test_the_page_that_is_opened_may_have_a_name(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = opened_by(True, monkeypatch)
    invoked("--open", "-o", tmp_path / "own.html")
    assert pages == [(tmp_path / "own.html").resolve().as_uri()]


@pytest.mark.parametrize("arguments", [("--format", "json"), ("--format", "text")])
def test_another_format_cannot_be_opened(arguments: tuple[str, ...], runs: Path) -> None:
    assert isinstance(invoked("--open", *arguments).exception, UsageError)


def test_it_is_sent_instead_of_shown(runs: Path, tmp_path: Path) -> None:
    done = invoked("--to", f"tensorboard:{tmp_path / 'logs'}", "--to", f"tensorboard:{tmp_path / 'logs'}")
    assert (done.exit_code, done.stdout) == (0, "")
    (line,) = done.stderr.splitlines()
    (run,) = (tmp_path / "logs" / "rn50-advisor").iterdir()
    assert line == f"tensorboard: {run}: tensorboard --logdir {tmp_path / 'logs'}"


def test_it_is_sent_and_shown_where_a_format_is_given(runs: Path, tmp_path: Path) -> None:
    done = invoked("--to", f"tensorboard:{tmp_path / 'logs'}", "--format", "json")
    assert json.loads(done.stdout)["verdict"] and (tmp_path / "logs").is_dir()


def test_nothing_is_sent_if_one_of_the_trackers_is_unknown(runs: Path, tmp_path: Path) -> None:
    done = invoked("--to", f"tensorboard:{tmp_path / 'logs'}", "--to", "comet")
    assert isinstance(done.exception, UsageError) and not (tmp_path / "logs").exists()
