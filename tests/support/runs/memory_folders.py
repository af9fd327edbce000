"""Folders on a real file system in memory. Not a test."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from rn50_advisor.probes.host.storage.mount_table import parse_mountinfo

SHARED = Path("/dev/shm")


@contextlib.contextmanager
def memory_folder() -> Iterator[Path]:
    mounts = parse_mountinfo(Path("/proc/self/mountinfo").read_text())
    if not any(entry.mount_point == str(SHARED) and entry.fs_type == "tmpfs" for entry in mounts):
        pytest.skip("RING FOLDERS ARE NOT TESTED: /dev/shm is no tmpfs here")
    with tempfile.TemporaryDirectory(prefix="rn50-test-", dir=SHARED) as name:
        yield Path(name)
