"""A launcher ends as its job did, and says in words how a process ended."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from rn50_advisor.advisor.run.launch.job_end import describe_error, describe_status


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (0, "ended with exit code 0"),
        (3 << 8, "ended with exit code 3"),
        (int(signal.SIGKILL), "was killed by SIGKILL"),
        (signal.SIGSEGV | 0x80, "was killed by SIGSEGV"),  # with a core dump
        (signal.SIGRTMIN + 1, f"was killed by signal {signal.SIGRTMIN + 1}"),
    ],
)
def test_a_wait_status_is_described(status: int, words: str) -> None:
    assert describe_status(status) == words


def test_an_error_is_described_by_its_first_cause() -> None:
    try:
        try:
            raise OSError("no such library")
        except OSError as cause:
            raise ImportError("a page of advice") from cause
    except ImportError as error:
        assert describe_error(error) == "OSError: no such library"
    assert describe_error(ValueError("x")) == "ValueError: x"


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("JobEnd(0, None)", 0),
        ("JobEnd(3, None)", 3),
        ("JobEnd(255, None)", 255),
        ("JobEnd(None, None)", 70),  # nobody saw the end
        ("JobEnd(None, signal.SIGTERM)", -signal.SIGTERM),
        ("JobEnd(None, signal.SIGKILL)", -signal.SIGKILL),
        ("JobEnd(None, signal.SIGSEGV)", -signal.SIGSEGV),
    ],
)
def test_we_end_as_the_job_did_with_all_output_written(end: str, expected: int) -> None:
    code = (
        "import signal, sys\n"
        "from rn50_advisor.advisor.run.launch.job_end import JobEnd, exit_like\n"
        "signal.signal(signal.SIGTERM, lambda *_: None)\n"
        "signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})\n"
        "sys.stdout.write('last words')\n"
        f"exit_like({end})\n"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, timeout=60, check=False)
    assert (found.returncode, found.stdout) == (expected, b"last words")


def test_a_stream_that_cannot_be_flushed_does_not_change_the_exit_code() -> None:
    code = (
        "import sys\n"
        "from rn50_advisor.advisor.run.launch.job_end import JobEnd, exit_like\n"
        "sys.stdout = open('/dev/full', 'w')\n"
        "sys.stdout.write('x')\n"
        "exit_like(JobEnd(4, None))\n"
    )
    assert subprocess.run([sys.executable, "-c", code], timeout=60, check=False).returncode == 4
