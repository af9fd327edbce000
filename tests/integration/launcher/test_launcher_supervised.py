"""A job behind a screen: its output is kept whole, and it outlives screen, supervisor and relay."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from launcher_harness import ROOT, children_that_run, descendants_of, is_gone, python
from rn50_advisor.advisor.model.errors import CommandNotExecutable, CommandNotFound
from rn50_advisor.advisor.run.launch import output_relay
from rn50_advisor.advisor.run.launch.output_lines import OutputTail
from rn50_advisor.advisor.run.launch.screen_job import Supervised
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.store.run_reader import read_recording
from waiting import DEADLINE_S, wait_for


@contextlib.contextmanager
def supervised(run_folder: Path, job: list[str], **arguments: Any) -> Iterator[Supervised]:
    handle = Supervised.start(job, run_folder=run_folder / "r", **arguments)
    try:
        yield handle
    finally:
        handle.kill()  # also what a dead supervisor has left
        for pid in (*descendants_of(handle.pid), handle.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutError, CommandNotFound, CommandNotExecutable):
            handle.wait(DEADLINE_S)


def says(handle: Supervised, text: bytes) -> bool:
    return handle.output.exists() and text in handle.output.read_bytes()


@pytest.mark.parametrize(
    ("code", "ending"), [("sys.exit(0)", (0, None)), ("sys.exit(7)", (7, None)), ("os.abort()", (None, 6))]
)
def test_the_end_is_the_jobs(run_folder: Path, code: str, ending: tuple[int | None, int | None]) -> None:
    with supervised(run_folder, python(f"import os, sys; {code}")) as handle:
        end = handle.wait(DEADLINE_S)
    assert (end.exit_code, end.signal) == ending
    assert end.recorded
    meta = read_recording(run_folder / "r").meta
    assert (meta.exit_code, meta.exit_signal) == ending


def test_it_prints_on_a_terminal_that_is_not_its_controlling_one(run_folder: Path) -> None:
    code = """
import os, sys
size = os.get_terminal_size(1)
try:
    os.open('/dev/tty', os.O_RDWR)
    controlling = 'controlled'
except OSError:
    controlling = 'free'
print(os.isatty(1), os.isatty(2), size.lines, size.columns, repr(sys.stdin.read()), controlling)
"""
    with supervised(run_folder, python(code), size=(33, 101)) as handle:
        handle.wait(DEADLINE_S)
        assert handle.output.read_text() == "True True 33 101 '' free\n"
        assert handle.output.stat().st_mode & 0o777 == 0o600


def test_a_burst_on_stderr_is_kept_whole_and_in_order(run_folder: Path) -> None:
    # every byte but the flow control characters, which a terminal would obey
    code = """
import os
block = b''.join(b'%07d\\n' % i for i in range(131072))
while block: block = block[os.write(2, block):]
os.write(1, b'the end')
"""
    with supervised(run_folder, python(code)) as handle:
        handle.wait(DEADLINE_S)
        assert handle.output.read_bytes() == b"".join(b"%07d\n" % i for i in range(131072)) + b"the end"


def test_a_progress_bar_stays_one_line(run_folder: Path) -> None:
    code = "import sys\nfor i in range(101): sys.stderr.write(f'\\r{i:3d}%|{\"#\" * (i // 10):10s}|')\nprint('\\ndone')"
    with supervised(run_folder, python(code)) as handle:
        handle.wait(DEADLINE_S)
        assert OutputTail(handle.output).lines_since(0).lines == ("100%|##########|", "done")


def test_a_new_size_reaches_the_job(run_folder: Path) -> None:
    code = "import os, time\nprint('ready', flush=True)\nwhile os.get_terminal_size(1) != (120, 50): time.sleep(0.01)"
    with supervised(run_folder, python(code)) as handle:
        wait_for(lambda: says(handle, b"ready"), "the start of the job")
        handle.resize(50, 120)
        assert handle.wait(DEADLINE_S).exit_code == 0


LISTENER = """
import os, signal
signals = {signal.SIGINT, signal.SIGTERM, signal.SIGPWR}
signal.pthread_sigmask(signal.SIG_BLOCK, signals)
os.write(1, b'ready\\n')
while (number := signal.sigwait(signals)) != signal.SIGPWR:
    os.write(1, b'got %s\\n' % number.name.encode())
"""


def test_interrupt_and_terminate_reach_the_job_once(run_folder: Path) -> None:
    with supervised(run_folder, python(LISTENER)) as handle:
        wait_for(lambda: says(handle, b"ready"), "the start of the job")
        for number in (1, 2):
            handle.interrupt()
            wait_for(lambda n=number: handle.output.read_bytes().count(b"got SIGINT") == n, "the interrupt")
        handle.terminate()
        wait_for(lambda: says(handle, b"got SIGTERM"), "the request to end")
        os.kill(handle.pid, signal.SIGPWR)
        assert handle.wait(DEADLINE_S).exit_code == 0
        assert handle.output.read_bytes().split(b"\n")[1:-1] == [b"got SIGINT"] * 2 + [b"got SIGTERM"]


def test_kill_ends_all_of_the_job_and_the_record_is_closed(run_folder: Path) -> None:
    code = (
        "import os, signal, subprocess\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "p = subprocess.Popen(['/bin/sleep', '300'], start_new_session=True)\nprint(p.pid, 'ready', flush=True)\np.wait(); signal.pause()"
    )
    with supervised(run_folder, python(code)) as handle:
        wait_for(lambda: says(handle, b"ready"), "the start of the job")
        grandchild = int(handle.output.read_bytes().split()[0])
        handle.kill()
        end = handle.wait(DEADLINE_S)
        assert end.signal == signal.SIGKILL
        wait_for(lambda: is_gone(grandchild), "the end of the grandchild")
    assert read_recording(run_folder / "r").meta.exit_signal == signal.SIGKILL


def test_after_its_end_nothing_is_signalled(run_folder: Path) -> None:
    with supervised(run_folder, ["/bin/true"]) as handle:
        handle.wait(DEADLINE_S)
        assert not handle.running()
        handle.interrupt()
        handle.terminate()
        handle.kill()
        handle.resize(1, 1)


@pytest.mark.parametrize(
    ("command", "error"), [("no-such-command-here", CommandNotFound), ("/etc/passwd", CommandNotExecutable)]
)
def test_a_command_that_cannot_run_is_an_error_here(run_folder: Path, command: str, error: type[Exception]) -> None:
    with supervised(run_folder, [command]) as handle, pytest.raises(error, match=command):
        handle.wait(DEADLINE_S)


TALKER = """
import os, sys, time
os.write(1, b'pid %d\\n' % os.getpid())
while not os.path.exists(sys.argv[1]): time.sleep(0.01)
os.write(1, b'still here\\n' * 10000)
os.write(1, b'the end\\n')
"""


def started(handle: Supervised) -> int:
    """The job's pid, once the job runs and its supervisor has said so."""
    wait_for(lambda: says(handle, b"pid"), "the start of the job")
    pid = int(handle.output.read_bytes().split()[1])
    wait_for(lambda: handle.poll() is None and handle.job_pid == pid, "the report of the start")
    return pid


def test_a_job_outlives_its_supervisor_and_runs_until_it_ends(run_folder: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with supervised(run_folder, python(TALKER, str(go))) as handle:
        pid = started(handle)
        assert handle.notice() == "" and not handle.end_unknown()
        os.kill(handle.pid, signal.SIGKILL)
        wait_for(handle.end_unknown, "the end of the supervisor")
        assert handle.running() and not is_gone(pid)
        assert "still runs, unrecorded" in handle.notice()
        with pytest.raises(TimeoutError):
            handle.wait(0.0)
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: "is stopped, unrecorded" in handle.notice(), "word of the stop")
        os.kill(pid, signal.SIGCONT)
        go.touch()
        end = handle.wait(DEADLINE_S)
        assert is_gone(pid) and not handle.running()
        assert (end.exit_code, end.signal) == (None, None), "nobody saw it"
        assert "how the job ended is not known" in handle.notice() and handle.notice() == end.complaint
        wait_for(lambda: says(handle, b"the end\n"), "the rest of the output")
        assert handle.output.read_bytes().count(b"still here\n") == 10000
        assert end.recorded == (run_folder / "r" / "run.sqlite").exists()


def test_a_number_used_again_is_not_the_job(run_folder: Path) -> None:
    with supervised(run_folder, python("import os; os.write(1, b'pid %d\\n' % os.getpid()); input()")) as handle:
        handle.wait(DEADLINE_S)
    other = Supervised(handle._process, -1, handle.run_folder)
    other._take({"event": "job", "pid": os.getpid()})
    assert other.running(), "that process lives"
    other._job_ticks = (other._job_ticks or 0) - 1  # as of an earlier life of its number
    assert not other.running()
    other.terminate()  # would end this test


def test_a_request_to_end_reaches_a_job_whose_supervisor_is_stopped_or_gone(run_folder: Path, tmp_path: Path) -> None:
    for number in (signal.SIGSTOP, signal.SIGKILL):
        with supervised(tmp_path / number.name, python(TALKER, str(tmp_path / "go"))) as handle:
            pid = started(handle)
            os.kill(handle.pid, number)
            wait_for(handle.notice, "word of it")
            handle.terminate()
            wait_for(lambda pid=pid: is_gone(pid), "the end of the job")
            if number == signal.SIGSTOP:
                wait_for(lambda handle=handle: "the job has ended" in handle.notice(), "word of the end")
                os.kill(handle.pid, signal.SIGCONT)
            end = handle.wait(DEADLINE_S)
            assert end.signal == (signal.SIGTERM if number == signal.SIGSTOP else None)


def test_a_stopped_supervisor_is_noticed_and_goes_on(run_folder: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with supervised(run_folder, python(TALKER, str(go))) as handle:
        pid = started(handle)
        os.kill(handle.pid, signal.SIGSTOP)
        wait_for(lambda: "recording is paused while the job runs on" in handle.notice(), "word of the stop")
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: "the job and its recording are stopped" in handle.notice(), "word of both")
        assert handle.running() and not handle.end_unknown()
        os.kill(pid, signal.SIGCONT)
        os.kill(handle.pid, signal.SIGCONT)
        wait_for(lambda: not handle.notice(), "word that all goes on")
        go.touch()
        assert handle.wait(DEADLINE_S).exit_code == 0
        assert handle.notice() == ""


def test_the_job_outlives_the_screen(run_folder: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    code = (
        "import sys; sys.path.insert(0, sys.argv[1])\nfrom pathlib import Path\n"
        "from rn50_advisor.advisor.run.launch.screen_job import Supervised\n"
        "s = Supervised.start(sys.argv[3:], run_folder=Path(sys.argv[2]))\nprint(s.pid, flush=True); sys.stdin.read()"
    )
    screen = subprocess.Popen(
        [sys.executable, "-c", code, str(ROOT / "src"), str(run_folder / "r"), *python(TALKER, str(go))],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert screen.stdout is not None and screen.stdin is not None
    supervisor = int(screen.stdout.readline())
    output = run_folder / "r" / "output.log"
    wait_for(lambda: output.exists() and b"pid" in output.read_bytes(), "the start of the job")
    os.killpg(screen.pid, signal.SIGKILL)
    screen.wait()
    screen.stdout.close()
    screen.stdin.close()
    assert not is_gone(supervisor)
    go.touch()
    wait_for(lambda: is_gone(supervisor), "the end of the supervisor")
    assert output.read_bytes().endswith(b"the end\n")
    assert read_recording(run_folder / "r").meta.exit_code == 0


def test_a_relay_that_is_killed_is_replaced_and_the_job_does_not_notice(run_folder: Path, tmp_path: Path) -> None:
    go = tmp_path / "go"
    with supervised(run_folder, python(TALKER, str(go))) as handle:
        wait_for(lambda: says(handle, b"pid"), "the start of the job")

        def relays() -> list[int]:
            return children_that_run(handle.pid, b"relay.py")

        (first,) = wait_for(relays, "a relay")
        wait_for(lambda: handle.poll() is None and handle.job_pid, "the report of the start")
        os.kill(first, signal.SIGKILL)
        wait_for(lambda: relays() not in ([], [first]), "another relay")
        go.touch()
        assert handle.wait(DEADLINE_S).exit_code == 0
        assert handle.output.read_bytes().count(b"still here\n") == 10000


def test_the_users_folder_cannot_shadow_what_we_import(run_folder: Path, tmp_path: Path) -> None:
    for name in ("json", "queue", "threading", "signal", "collections", "advisor"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('shadowed')")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        with supervised(run_folder, ["/bin/pwd"]) as handle:
            assert handle.wait(DEADLINE_S).exit_code == 0
            assert handle.output.read_text() == f"{tmp_path}\n"
    finally:
        os.chdir(before)


def test_options_and_name_arrive(run_folder: Path) -> None:
    with supervised(run_folder, ["/bin/sleep", "0.5"], options=RunOptions(host_probes=False), name="mine") as handle:
        handle.wait(DEADLINE_S)
    recording = read_recording(run_folder / "r")
    assert recording.meta.name == "mine"
    assert not recording.samples, "of the host there is at least a last look"


# -- the relay's own file ----------------------------------------------------------------------------------------------------------


def test_what_finds_no_room_is_counted_and_named_when_there_is_room_again(tmp_path: Path) -> None:
    log = tmp_path / "absent" / "log"
    writer = output_relay.LogWriter(str(log))
    writer.put(b"lost\n")
    wait_for(lambda: writer._dropped == 5, "the count")
    log.parent.mkdir()
    writer.put(b"kept\n")
    writer.end()
    assert log.read_bytes() == b"\n[rn50-advisor: 5 bytes of output are missing here]\nkept\n"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_never_stops_the_reading(tmp_path: Path) -> None:
    reading, writing = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-IS", output_relay.__file__, str(reading), "/dev/full"], pass_fds=[reading]
    )
    os.close(reading)
    for _ in range(64):
        os.write(writing, b"x" * 65536)  # blocks for ever if nobody reads
    os.close(writing)
    assert process.wait(DEADLINE_S) == 0
