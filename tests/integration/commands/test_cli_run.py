"""`run` around jobs without torch: argv, output and exit code pass through; the summary and reports never change how it ends."""

from __future__ import annotations

import gzip
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from cli_process import TIMEOUT_S, advisor, environment

SHOW_ARGV = "import os, sys; sys.stdout.buffer.write(b'\\0'.join(map(os.fsencode, sys.argv[1:])))"
ARGUMENTS = [
    "--help",
    "-v",
    "--",
    "--report",
    "x.pdf",
    "",
    "two words",
    "ä",
    os.fsdecode(b"\xff\xfe"),
    "--no-tui",
    "--version",
]


def job(program: str, *arguments: str) -> list[str]:
    return [sys.executable, "-c", program, *arguments]


@pytest.mark.parametrize("separator", [["--"], []])
def test_the_jobs_arguments_arrive_byte_for_byte(separator: list[str], tmp_path: Path) -> None:
    done = advisor("run", "--name", "argv", *separator, *job(SHOW_ARGV, *ARGUMENTS), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split(b"\0") == [os.fsencode(argument) for argument in ARGUMENTS]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGSEGV])
def test_a_job_that_dies_of_a_signal_is_seen_to_die_of_it(number: signal.Signals, tmp_path: Path) -> None:
    done = advisor("run", *job(f"import os; os.kill(os.getpid(), {int(number)})"), cwd=tmp_path)
    assert done.returncode == -number
    assert number.name.encode() in done.stderr


def test_output_is_untouched_and_the_summary_comes_after_it_on_stderr(tmp_path: Path) -> None:
    program = "import sys; sys.stdout.write('out\\r\\n'); sys.stderr.write('err\\n')"
    done = advisor("run", "--name", "quiet", *job(program), cwd=tmp_path)
    assert done.stdout == b"out\r\n"
    jobs, summary = done.stderr.split(b"rn50-advisor ", 1)
    assert jobs == b"err\n"
    (folder,) = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("-quiet")
    assert f"rn50-advisor report runs/{folder.name}".encode() in summary
    assert len(done.stderr.splitlines()) <= 13


def test_the_job_runs_although_nobody_may_look_at_the_run_dir(tmp_path: Path) -> None:
    done = advisor(
        "run", "--run-dir", "x" * 300, *job("print('done')"), cwd=tmp_path
    )  # no file system takes such a name
    assert (done.returncode, done.stdout) == (0, b"done\n")
    assert done.stderr.startswith(b"rn50-advisor: the job runs unrecorded: ")


def test_a_run_is_listed_with_its_verdict_and_goes_without_a_trace(tmp_path: Path) -> None:
    assert advisor("run", "--name", "first", *job("pass"), cwd=tmp_path).returncode == 0
    (listed,) = json.loads(advisor("runs", "--json", cwd=tmp_path).stdout)["runs"]
    assert listed["name"].endswith("-first") and listed["state"] == "inconclusive" and listed["title"]
    assert advisor("runs", "rm", "--yes", "first", cwd=tmp_path).stderr == b""
    assert list((tmp_path / "runs").iterdir()) == []


def test_reports_are_written_in_the_format_of_their_names(tmp_path: Path) -> None:
    names = ["a.json", "b.md", "c.html", "d.txt", "e.perfetto.json.gz"]
    options = [word for name in names for word in ("--report", name)]
    done = advisor("run", *options, "--", *job("pass"), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "a.json").read_text())
    assert report["schema"] == "rn50-advisor/report/1"
    assert report["job"]["argv"] == job("pass") and report["job"]["exit_code"] == 0
    assert (tmp_path / "b.md").read_text().startswith("# ")
    assert (tmp_path / "c.html").read_text().startswith("<!DOCTYPE html>")
    assert (tmp_path / "d.txt").read_text().startswith("rn50-advisor report")
    trace = json.loads(gzip.decompress((tmp_path / "e.perfetto.json.gz").read_bytes()))
    assert trace["otherData"]["schema"] == "rn50-advisor/perfetto/1" and trace["traceEvents"]
    assert b"a.json, b.md, c.html, d.txt, e.perfetto.json.gz" in done.stderr


def test_a_report_that_cannot_be_written_is_a_warning(tmp_path: Path) -> None:
    done = advisor("run", "--report", "nowhere/a.json", "--report", "b.json", *job("raise SystemExit(3)"), cwd=tmp_path)
    assert done.returncode == 3
    assert b"nowhere/a.json could not be written" in done.stderr
    assert (tmp_path / "b.json").exists()


@pytest.mark.parametrize(
    "options", [["--report", "x.pdf"], ["--overhead-budget", "200"], ["--config", "nowhere.toml"], ["--bogus"]]
)
def test_wrong_options_are_refused_before_the_job_starts(options: list[str], tmp_path: Path) -> None:
    done = advisor("run", *options, "--", *job("open('started', 'w')"), cwd=tmp_path)
    assert done.returncode in (64, 78)
    assert list(tmp_path.iterdir()) == []


def test_where_no_run_can_be_kept_the_job_runs_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file stands where the folder should be")
    done = advisor(
        "run", "--run-dir", "runs/inner", "--report", "a.json", *job("print('ran'); raise SystemExit(4)"), cwd=tmp_path
    )
    assert (done.returncode, done.stdout) == (4, b"ran\n")
    assert b"rn50-advisor: " in done.stderr
    assert not (tmp_path / "a.json").exists()


def test_a_job_that_removes_its_own_recording_still_ends_as_it_does(tmp_path: Path) -> None:
    done = advisor("run", *job("import shutil; shutil.rmtree('runs'); raise SystemExit(5)"), cwd=tmp_path)
    assert done.returncode == 5
    assert b"Traceback" not in done.stderr


def test_a_job_whose_stderr_is_gone_still_ends_as_it_does(tmp_path: Path) -> None:
    shell = (
        f"'{sys.executable}' -m rn50_advisor.advisor.cli run '{sys.executable}' -c 'raise SystemExit(6)' 2>&-; echo $?"
    )
    done = subprocess.run(
        ["bash", "-c", shell], cwd=tmp_path, env=environment(), capture_output=True, timeout=TIMEOUT_S, check=True
    )
    assert done.stdout == b"6\n"


def test_the_folder_of_runs_can_be_set_by_the_environment(tmp_path: Path) -> None:
    done = advisor("run", *job("pass"), cwd=tmp_path, env={"RN50_ADVISOR_RUN_DIR": "elsewhere"})
    assert done.returncode == 0
    assert len(list((tmp_path / "elsewhere").iterdir())) == 1


def test_while_a_job_runs_its_launcher_has_mapped_nothing_but_python(tmp_path: Path) -> None:
    """Drivers, databases and arrays may crash; the process that the job's exit code comes from has none of them, and no thread."""
    done = advisor("run", "--", "sh", "-c", "sleep 1; cat /proc/$PPID/maps; ls /proc/$PPID/task", cwd=tmp_path)
    *maps, task = done.stdout.decode().splitlines()
    mapped = {line.split()[-1] for line in maps if ".so" in line}
    assert mapped and not [name for name in mapped if "-packages" in name or "sqlite" in name or "nvidia" in name]
    assert task.isdigit() and not maps[-1].isdigit()


def test_where_memory_is_short_the_job_runs_and_each_failure_is_one_line(tmp_path: Path) -> None:
    """100 MB of addresses are enough for Python, and not for numpy and what it brings."""
    shell = f"ulimit -v 100000; exec '{sys.executable}' -m rn50_advisor.advisor.cli run sh -c 'echo ran; exit 6'"
    done = subprocess.run(
        ["bash", "-c", shell], cwd=tmp_path, env=environment(), capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stdout) == (6, b"ran\n")
    assert all(line.startswith(b"rn50-advisor: ") for line in done.stderr.splitlines())
    assert 0 < len(done.stderr.splitlines()) <= 2


def test_in_a_folder_that_is_gone_the_job_runs_and_the_summary_comes(tmp_path: Path) -> None:
    shell = "cd gone && rmdir ../gone && exec '{}' -m rn50_advisor.advisor.cli run --run-dir '{}' '{}' -c 'print(1); raise SystemExit(6)'"
    (tmp_path / "gone").mkdir()
    command = shell.format(sys.executable, tmp_path / "runs", sys.executable)
    done = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment(), capture_output=True, timeout=TIMEOUT_S, check=False
    )
    assert (done.returncode, done.stdout) == (6, b"1\n")
    assert b"rn50-advisor \xe2" in done.stderr and b"no summary" not in done.stderr


BROKEN = "raise RuntimeError('no such thing')"
CRASHED = "import ctypes; ctypes.string_at(0)"
SIGNALLED = "import os; os.kill(os.getpid(), {})"


def test_where_no_process_can_be_had_the_command_becomes_the_job(tmp_path: Path) -> None:
    program = (
        "import errno, sys, rn50_advisor.advisor.run.launch.spawn as spawn\n"
        "def full(*_, **__):\n    raise BlockingIOError(errno.EAGAIN, 'Resource temporarily unavailable')\n"
        "spawn.subprocess.Popen = full\n"
        "from rn50_advisor.advisor.cli import main\nmain(['run', '--no-tui', '--', 'sh', '-c', 'echo done; exit 9'])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, timeout=TIMEOUT_S, check=False)
    assert (done.returncode, done.stdout) == (9, b"done\n")
    assert b"runs unwatched" in done.stderr


@pytest.mark.parametrize(
    "trouble", [BROKEN, CRASHED, *(SIGNALLED.format(int(n)) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))]
)
def test_what_befalls_us_after_the_job_is_one_line_and_not_the_exit_code(trouble: str, tmp_path: Path) -> None:
    program = (
        f"import rn50_advisor.advisor.verdict.diagnose\ndef trouble(*_):\n    {trouble}\n"
        f"rn50_advisor.advisor.verdict.diagnose.diagnose = trouble\n"
        "from rn50_advisor.advisor.cli import main\nmain(['run', '--', 'sh', '-c', 'exit 9'])"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, cwd=tmp_path, env=environment(), capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 9
    (line,) = done.stderr.decode().splitlines()
    assert line.startswith("rn50-advisor: no summary: ") and "rn50-advisor report runs/" in line
