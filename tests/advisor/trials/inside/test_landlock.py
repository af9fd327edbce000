"""Which rights Landlock's versions can take, and what happens where there is none."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rn50_advisor.advisor.trials.inside import landlock
from rn50_advisor.advisor.trials.inside.landlock import TRUNCATE, WRITE_FILE, rights

_EXECUTE, _READ_FILE, _READ_DIR, _REFER = 1, 1 << 2, 1 << 3, 1 << 13


@pytest.mark.parametrize(("version", "known"), [(1, 0), (2, _REFER), (3, _REFER | TRUNCATE), (9, _REFER | TRUNCATE)])
def test_each_version_handles_what_it_knows_and_never_reading(version: int, known: int) -> None:
    found = rights(version)
    assert found & WRITE_FILE
    assert found & (_REFER | TRUNCATE) == known
    assert not found & (_EXECUTE | _READ_FILE | _READ_DIR)
    assert found < 1 << 15, "an unknown right would be refused"


def test_a_kernel_without_it_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(landlock, "version_here", lambda: 0)
    with pytest.raises(OSError, match="no Landlock"):
        landlock.restrict(["/dev"])


TRUNCATING = """
import os, sys
from rn50_advisor.advisor.trials.inside.landlock import restrict
path, newest = sys.argv[1], int(sys.argv[2])
restrict([], newest=newest)
for name, call in (
    ("truncate", lambda: os.truncate(path, 1)),
    ("open", lambda: os.open(path, os.O_RDONLY | os.O_TRUNC)),
    ("write", lambda: os.open(path, os.O_WRONLY)),
    ("read", lambda: os.open(path, os.O_RDONLY)),
):
    try:
        call()
        print(name, "done")
    except PermissionError:
        print(name, "refused")
"""


@pytest.mark.parametrize("newest", [1, 2, 99])
def test_no_file_is_cut_off_whatever_the_version_knows(tmp_path: Path, newest: int) -> None:
    if not landlock.version_here():
        pytest.skip("NOT TESTED HERE: this kernel has no Landlock")
    path = tmp_path / "file"
    path.write_text("as it was")
    argv = [sys.executable, "-c", TRUNCATING, str(path), str(newest)]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True)
    assert ended.stdout.split() == ["truncate", "refused", "open", "refused", "write", "refused", "read", "done"]
    assert path.read_text() == "as it was"
