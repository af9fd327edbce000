"""Why a recording ended, in words for a user."""

from __future__ import annotations

import errno
import os
import sqlite3
from pathlib import Path

import pytest

from rn50_advisor.advisor.model.errors import AdvisorError
from rn50_advisor.advisor.store.recording_failure import RecordingStopped, failure_reason


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (sqlite3.OperationalError("attempt to write a readonly database"), "{folder} is read-only"),
        (OSError(errno.EROFS, os.strerror(errno.EROFS)), "{folder} is read-only"),
        (sqlite3.OperationalError("database or disk is full"), "the disk of {folder} is full"),
        (OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), "the disk of {folder} is full"),
        (FileNotFoundError("run.sqlite"), "the run file in {folder} vanished"),
        (sqlite3.OperationalError("disk I/O error"), "{folder}: disk I/O error"),
    ],
)
def test_the_reason_names_the_folder(tmp_path: Path, error: Exception, words: str) -> None:
    assert failure_reason(error, tmp_path) == words.format(folder=tmp_path)


def test_a_folder_that_is_gone_is_the_reason_of_whatever_fails(tmp_path: Path) -> None:
    gone = tmp_path / "gone"
    for error in (sqlite3.OperationalError("disk I/O error"), FileNotFoundError("run.sqlite"), OSError("full")):
        assert failure_reason(error, gone) == f"the run folder {gone} vanished"


def test_a_full_disk_is_seen_where_the_error_does_not_say_so() -> None:
    """/proc is a file system without any room."""
    assert failure_reason(sqlite3.OperationalError("disk I/O error"), Path("/proc")) == "the disk of /proc is full"


def test_the_message_says_that_the_job_goes_on() -> None:
    stopped = RecordingStopped("the disk of /runs is full")
    assert isinstance(stopped, AdvisorError)
    assert stopped.reason == "the disk of /runs is full"
    assert stopped.message == "recording stopped: the disk of /runs is full"
    assert stopped.hint.startswith("the job goes on")
