"""`report`, `bundle` and `watch` on a real recording, without torch."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path

import pytest
from test_cli_help import imported

from cli_process import TIMEOUT_S, advisor, environment
from rn50_advisor.advisor.store.schema import FILE_NAME


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one finished run called `first`."""
    folder = tmp_path_factory.mktemp("home")
    done = advisor("run", "--name", "first", "--", sys.executable, "-c", "print('hello')", cwd=folder)
    assert done.returncode == 0, done.stderr
    return folder


def run_folder_of(home: Path) -> Path:
    (folder,) = (home / "runs").iterdir()
    return folder


@pytest.mark.parametrize("how", ["latest", "name", "folder", "file", "default"])
def test_a_run_is_found_by_all_its_names(how: str, home: Path) -> None:
    folder = run_folder_of(home)
    names = {
        "latest": ["latest"],
        "name": ["first"],
        "folder": [str(folder)],
        "file": [str(folder / FILE_NAME)],
        "default": [],
    }
    done = advisor("report", *names[how], "--format", "json", cwd=home)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["job"]["name"] == "first"


def test_text_goes_to_stdout_without_colour_in_a_pipe(home: Path) -> None:
    done = advisor("report", cwd=home)
    assert done.returncode == 0 and done.stderr == b""
    assert done.stdout.startswith(b"rn50-advisor report") and b"\x1b" not in done.stdout


def test_a_file_name_chooses_the_format_unless_one_is_given(home: Path, tmp_path: Path) -> None:
    advisor("report", "-o", tmp_path / "a.html", cwd=home)
    advisor("report", "--format", "json", "-o", tmp_path / "b.html", cwd=home)
    advisor("report", "-o", tmp_path / "c.log", cwd=home)
    assert (tmp_path / "a.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((tmp_path / "b.html").read_text())["schema"]
    assert (tmp_path / "c.log").read_text().startswith("rn50-advisor report")


def test_a_file_that_cannot_be_written_is_said(home: Path) -> None:
    done = advisor("report", "-o", "nowhere/a.html", cwd=home)
    assert done.returncode == 1
    assert b"cannot write nowhere/a.html" in done.stderr


@pytest.mark.parametrize("format", ["text", "json", "md", "html"])
def test_reports_are_made_without_torch_or_a_screen(format: str, home: Path) -> None:
    assert not imported(["report", "--format", format], home) & {"torch", "textual", "pynvml"}


def test_a_locale_without_unicode_is_no_reason_to_fail(home: Path) -> None:
    done = advisor("report", cwd=home, env={"LC_ALL": "C", "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"})
    assert done.returncode == 0, done.stderr
    assert done.stdout.isascii()


def test_files_are_utf_8_whatever_the_locale(home: Path) -> None:
    done = advisor(
        "report", "--format", "md", cwd=home, env={"LC_ALL": "C", "PYTHONIOENCODING": "latin-1", "PYTHONUTF8": "0"}
    )
    assert done.stdout == advisor("report", "--format", "md", cwd=home, env={"PYTHONUTF8": "1"}).stdout


@pytest.mark.parametrize("format", ["text", "json"])
def test_without_a_standard_output_there_is_one_line_and_a_file_can_be_written_all_the_same(
    format: str, home: Path, tmp_path: Path
) -> None:
    shell = f"'{sys.executable}' -m rn50_advisor.advisor.cli report --format {format}"
    for more, code in ((">&-", 1), (f"-o {tmp_path / 'r'} >&-", 0)):
        done = subprocess.run(
            ["bash", "-c", f"{shell} {more}"],
            cwd=home,
            env=environment(),
            capture_output=True,
            timeout=TIMEOUT_S,
            check=False,
        )
        assert done.returncode == code, done.stderr
        assert len(done.stderr.splitlines()) == code
    assert (tmp_path / "r").stat().st_size > 0


FOREIGN = """
import os, signal, sys
for name in ("fcntl", "resource", "termios", "pwd", "grp", "tty", "pty"):
    sys.modules[name] = None
for module, names in ((signal, ("SIGHUP", "SIGQUIT", "SIGALRM", "SIGCHLD", "SIGSTOP", "SIGCONT", "SIGTSTP")),
                      (os, ("statvfs", "sched_getaffinity", "waitid", "pread", "fork", "WEXITED", "O_CLOEXEC", "sysconf", "getuid"))):
    for name in names:
        delattr(module, name)
from rn50_advisor.advisor.cli import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize(
    "arguments", [["report"], ["report", "--format", "html"], ["compare", "first", "first"], ["explain", "DAT003"]]
)
def test_what_is_read_on_other_systems_needs_nothing_of_linux(arguments: list[str], home: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FOREIGN, *arguments],
        cwd=home,
        env=environment(),
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout and not done.stderr


def test_a_bundle_gives_the_same_report_as_the_run(home: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "slow.tar.gz"
    done = advisor("bundle", "first", "-o", bundle, cwd=home)
    assert (done.returncode, done.stdout.decode()) == (0, f"{bundle}\n")
    reports = [json.loads(advisor("report", what, "--format", "json", cwd=home).stdout) for what in ("first", bundle)]
    assert reports[0] == reports[1]


def test_a_bundle_replaces_nothing_unless_forced(home: Path, tmp_path: Path) -> None:
    bundle = tmp_path / "slow.tar.gz"
    bundle.write_text("precious")
    refused = advisor("bundle", "first", "-o", bundle, cwd=home)
    assert refused.returncode == 64 and bundle.read_text() == "precious"
    assert advisor("bundle", "first", "-o", bundle, "--force", cwd=home).returncode == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_is_terminated_leaves_no_unpacked_bundle(home: Path, tmp_path: Path, number: signal.Signals) -> None:
    bundle = tmp_path / "handed-on.tar.gz"
    assert advisor("bundle", str(run_folder_of(home)), "-o", str(bundle), cwd=home).returncode == 0
    slow = (
        "import time, sys\nfrom rn50_advisor.advisor.merge import job_reading\nfrom rn50_advisor.advisor.cli import main\n"
        "job_reading._with_sent = lambda *_: (print('unpacked', flush=True), time.sleep(60))\nmain(sys.argv[1:])"
    )
    places = tmp_path / "tmp"
    places.mkdir()
    variables = environment() | {"TMPDIR": str(places)}
    command = [sys.executable, "-c", slow, "report", str(bundle)]
    with subprocess.Popen(command, cwd=home, env=variables, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdout.readline() == b"unpacked\n"
        assert [path.name.startswith("rn50-unpacked-") for path in places.iterdir()] == [True]
        process.send_signal(number)
        assert process.communicate()[1] == b""
    assert process.returncode == 128 + number and list(places.iterdir()) == []


def test_a_report_can_be_made_while_the_job_runs(tmp_path: Path) -> None:
    program = "import sys; print('up', flush=True); sys.stdin.read()"
    command = [sys.executable, "-m", "rn50_advisor.advisor.cli", "run", "--no-tui", "--", sys.executable, "-c", program]
    with subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        assert running.stdout.readline() == b"up\n"
        try:
            report = _first_report(tmp_path)
        finally:
            running.stdin.close()
            running.wait(TIMEOUT_S)
    assert report["job"]["running"] is True and report["job"]["exit_code"] is None
    ended = json.loads(advisor("report", "--format", "json", cwd=tmp_path).stdout)
    assert ended["job"]["running"] is False and ended["job"]["exit_code"] == 0


def test_watch_replays_a_finished_run_on_a_terminal_and_leaves_on_q(home: Path) -> None:
    screen, terminal = pty.openpty()
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", 30, 100, 0, 0))
    command = [sys.executable, "-m", "rn50_advisor.advisor.cli", "watch", "first", "--speed", "100"]
    watching = subprocess.Popen(
        command, cwd=home, env=environment(TERM="xterm-256color"), stdin=terminal, stdout=terminal, stderr=terminal
    )
    os.close(terminal)
    deadline = time.monotonic() + TIMEOUT_S
    shown = b""
    try:
        while b"replay" not in shown and time.monotonic() < deadline:
            shown += _read(screen)
        assert b"replay" in shown, shown[-2000:]
        os.write(screen, b"q")
        while watching.poll() is None and time.monotonic() < deadline:
            _read(screen)
        assert watching.poll() == 0
    finally:
        watching.kill()
        watching.wait(TIMEOUT_S)
        os.close(screen)


def _read(screen: int) -> bytes:
    """Output so far, after a short wait; the end of the other side is no error."""
    if not select.select([screen], [], [], 0.2)[0]:
        return b""
    try:
        return os.read(screen, 65536)
    except OSError:
        return b""


def _first_report(cwd: Path) -> dict[str, dict[str, object]]:
    """The run file comes a moment after the job: asked for until it is there."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        done = advisor("report", "--format", "json", cwd=cwd)
        if done.returncode == 0:
            report: dict[str, dict[str, object]] = json.loads(done.stdout)
            return report
    raise AssertionError(done.stderr)
