"""The screen's handle on a job behind it."""

from __future__ import annotations

import fcntl
import os
import resource

import pytest

from rn50_advisor.advisor.run.launch.screen_job import Supervised

BEYOND_SELECT = 1024  # FD_SETSIZE: `select` refuses descriptors from here on


def test_reports_are_awaited_however_many_files_are_open() -> None:
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] <= BEYOND_SELECT:
        pytest.skip("THE SCREEN BESIDE MANY OPEN FILES IS NOT TESTED: ulimit -n is too low")
    read, write = os.pipe()
    high = fcntl.fcntl(read, fcntl.F_DUPFD_CLOEXEC, BEYOND_SELECT)
    try:
        job = object.__new__(Supervised)
        job._reports = high
        os.write(write, b"{}\n")
        job._await_report(5.0)
    finally:
        for descriptor in (read, write, high):
            os.close(descriptor)
