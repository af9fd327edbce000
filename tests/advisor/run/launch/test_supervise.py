"""The process that runs a job behind a screen: it reports, keeps the output, and ends as the job did."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import struct
import subprocess
import termios
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.run.launch.own_processes import start_module
from rn50_advisor.advisor.run.launch.supervise import OUTPUT_NAME, Relay, StatusLines, open_terminal, set_size
from rn50_advisor.advisor.run.run_options import RunOptions
from rn50_advisor.advisor.store import schema
from rn50_advisor.advisor.store.run_removal import removable
from waiting import wait_for

MODULE = "rn50_advisor.advisor.run.launch.supervise"


def size_of(descriptor: int) -> tuple[int, int]:
    rows, columns, *_ = struct.unpack("HHHH", fcntl.ioctl(descriptor, termios.TIOCGWINSZ, b"\0" * 8))
    return rows, columns


def started(folder: Path, *argv: str) -> tuple[subprocess.Popen[bytes], int]:
    """With what reads its reports."""
    read, write = os.pipe()
    options = asdict(RunOptions(host_probes=False))
    request = {"report": write, "run_folder": str(folder), "rows": 30, "columns": 100, "options": options, "name": ""}
    asked, asking = os.pipe()
    process = start_module(MODULE, [str(asked), *argv], descriptors=[write, asked])
    os.close(write)
    os.close(asked)
    with os.fdopen(asking, "w") as pipe:
        json.dump(request, pipe)
    return process, read


def reports(read: int) -> list[dict[str, Any]]:
    with os.fdopen(read) as lines:
        return [json.loads(line) for line in lines]


def test_the_terminal_changes_nothing_on_its_way() -> None:
    master, slave = open_terminal(30, 100)
    os.write(slave, b"one\ntwo\x03\n")
    assert os.read(master, 100) == b"one\ntwo\x03\n"
    assert size_of(slave) == (30, 100)
    set_size(master, 5, 7)
    assert size_of(slave) == (5, 7)
    os.close(master)
    os.close(slave)


def test_the_output_lies_where_everybody_looks_for_it() -> None:
    assert OUTPUT_NAME == schema.OUTPUT_NAME


@pytest.mark.parametrize(
    ("job", "code", "number"), [("echo hello; tty; exit 3", 3, None), ("echo hello; kill -TERM $$", None, 15)]
)
def test_it_reports_each_event_and_ends_as_the_job_did(
    tmp_path: Path, job: str, code: int | None, number: int | None
) -> None:
    process, read = started(tmp_path / "run", "sh", "-c", job)
    terminal, ran, ended = reports(read)
    assert process.wait(60) == (code if number is None else -number)
    assert terminal["event"] == "terminal" and (terminal["path"] is None or terminal["path"].startswith("/dev/"))
    assert ran["event"] == "job" and ran["pid"] > 0
    assert (ended["event"], ended["exit_code"], ended["signal"], ended["started"]) == ("ended", code, number, True)
    assert ended["recorded"] and ended["complaint"] is None
    assert (tmp_path / "run" / OUTPUT_NAME).read_text().startswith("hello\n")
    assert removable(tmp_path / "run").kept == ()


def test_a_command_that_is_not_there_is_reported_with_its_exit_code(tmp_path: Path) -> None:
    process, read = started(tmp_path / "run", "no-such-command-anywhere")
    _, failed, ended = reports(read)
    assert process.wait(60) == 127
    assert (failed["event"], failed["message"]) == ("failed", "no-such-command-anywhere: command not found")
    assert (failed["exit_code"], ended["started"]) == (127, False)
    assert list(tmp_path.iterdir()) == []


def test_a_run_folder_that_cannot_be_made_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    process, read = started(tmp_path / "file" / "run", "true")
    (failed,) = reports(read)
    process.wait(60)
    assert failed["event"] == "failed"
    assert failed["message"].startswith("no terminal for the job: ")
    assert "--no-tui" in failed["hint"]


def test_a_screen_that_was_closed_does_not_end_the_job(tmp_path: Path) -> None:
    process, read = started(tmp_path / "run", "sh", "-c", "echo to the end; exit 5")
    os.close(read)
    assert process.wait(60) == 5
    assert (tmp_path / "run" / OUTPUT_NAME).read_text() == "to the end\n"


def test_nobody_listens_to_the_reports() -> None:
    read, write = os.pipe()
    lines = StatusLines(write)
    lines.write(event="job", pid=7)
    assert json.loads(os.read(read, 100)) == {"event": "job", "pid": 7}
    assert not os.get_inheritable(write)
    os.close(read)
    lines.write(event="ended")
    os.close(write)


def test_a_relay_that_is_killed_is_replaced_until_a_thread_of_ours_does_its_work(tmp_path: Path) -> None:
    log, written = tmp_path / "output.log", b""
    master, slave = open_terminal(24, 80)
    relay, pids = Relay(master, log), set()
    while pid := relay.look():
        pids.update(pid)
        os.write(slave, b"%d\n" % len(pids))
        written += b"%d\n" % len(pids)
        # as they are in this round; checked within it
        wait_for(lambda: log.exists() and log.read_bytes() == written, "the line")  # noqa: B023
        os.kill(*pid, signal.SIGKILL)
        wait_for(lambda: relay.look() != pid, "the end of a relay")
    assert len(pids) > 1
    os.write(slave, b"last\n")
    assert not relay.drained(0.0)
    os.close(slave)
    assert relay.drained(30.0)
    assert log.read_bytes() == written + b"last\n"
    os.close(master)


def test_output_is_drained_when_the_last_one_has_closed_the_terminal(tmp_path: Path) -> None:
    master, slave = open_terminal(24, 80)
    relay = Relay(master, tmp_path / "output.log")
    os.write(slave, b"one\n")
    assert not relay.drained(0.0)
    os.close(slave)
    assert relay.drained(30.0)
    assert relay.look() == ()
    assert (tmp_path / "output.log").read_bytes() == b"one\n"
    os.close(master)
