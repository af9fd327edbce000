"""Reaps children that we did not start: orphans of the job, if we are a container's init or a subreaper."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Collection


def reap_adopted(own: Collection[int]) -> None:
    """`own`: children that somebody here waits for. One of them that has just ended hides the others until it has been waited for."""
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) is not None:
            if ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, os.WNOHANG)
