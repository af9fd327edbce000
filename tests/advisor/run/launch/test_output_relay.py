"""What keeps the job's output: it masks secrets, never makes the job wait, and lives on without its parent."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from rn50_advisor.advisor.run.launch import output_relay
from rn50_advisor.advisor.run.launch.output_relay import LogWriter, copy_until_closed
from rn50_advisor.advisor.run.launch.own_processes import start_file
from rn50_advisor.advisor.run.launch.supervise import open_terminal
from waiting import wait_for

TOKEN = "hf_" + "aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3x"


def test_output_is_kept_in_order_for_the_user_alone(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    writer = LogWriter(str(log))
    for number in range(200):
        writer.put(b"line %d\n" % number)
    writer.put(b"no end")
    writer.end()
    assert log.read_bytes() == b"".join(b"line %d\n" % n for n in range(200)) + b"no end"
    assert log.stat().st_mode & 0o777 == 0o600


def test_secrets_are_masked_though_they_come_in_pieces(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    writer = LogWriter(str(log))
    text = f"token={TOKEN} epoch 1\n".encode()
    writer.put(text[:14])
    writer.put(text[14:])
    writer.end()
    kept = log.read_bytes()
    assert TOKEN.encode()[6:] not in kept
    assert kept.endswith(b" epoch 1\n")


@pytest.mark.parametrize("data", [b"", b"\xff\xfe\n", b"\r50%\r100%\n", b"\n\n\n"])
def test_any_bytes_come_through(data: bytes, tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    writer = LogWriter(str(log))
    writer.put(data)
    writer.end()
    assert (log.read_bytes() if log.exists() else b"") == data


def test_what_had_to_be_dropped_is_counted_in_the_file(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    writer = LogWriter(str(log))
    writer.put(b"x" * (33 << 20))  # more than is ever held for a disk
    writer.put(b"after\n")
    writer.end()
    assert log.read_bytes() == b"\n[rn50-advisor: %d bytes of output are missing here]\nafter\n" % (33 << 20)


def test_a_folder_that_is_gone_costs_the_output_and_nothing_else(tmp_path: Path) -> None:
    writer = LogWriter(str(tmp_path / "gone" / "output.log"))
    writer.put(b"lost\n")
    writer.end()
    assert list(tmp_path.iterdir()) == []


def test_copying_ends_when_nobody_has_the_terminal_open(tmp_path: Path) -> None:
    master, slave = open_terminal(24, 80)
    os.write(slave, b"one\ntwo\n")
    os.close(slave)
    copy_until_closed(master, LogWriter(str(tmp_path / "output.log")))
    os.close(master)
    assert (tmp_path / "output.log").read_bytes() == b"one\ntwo\n"


def test_the_process_goes_on_through_signals_until_the_terminal_is_closed(tmp_path: Path) -> None:
    log = tmp_path / "output.log"
    master, slave = open_terminal(24, 80)
    relay = start_file(Path(output_relay.__file__), [str(master), str(log)], descriptors=[master])
    os.close(master)
    os.write(slave, b"before\n")
    wait_for(lambda: log.exists() and log.read_bytes(), "the first line")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        relay.send_signal(number)
    os.write(slave, b"after\n")
    os.close(slave)
    assert relay.wait(30) == 0
    assert log.read_bytes() == b"before\nafter\n"
