"""A process in its own mount namespace keeps its ids, and its mounts to itself."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holding import may_mount
from rn50_advisor.advisor.trials.inside.namespaces import IdMapping

ENTERING = """
import ctypes, os, sys
if sys.argv[2] == "weak":
    ctypes.CDLL(None).prctl(24, 21, 0, 0, 0)  # PR_CAPBSET_DROP of CAP_SYS_ADMIN, which an exec makes true
    os.execv(sys.executable, [sys.executable, "-c", sys.argv[3], sys.argv[1], "strong", ""])
from rn50_advisor.advisor.trials.inside import namespaces, system_calls
mapping = namespaces.enter()
system_calls.mount("rn50-test", sys.argv[1], "tmpfs")
print(mapping.user, mapping.alone is None, os.getuid(), os.getgid(), os.path.ismount(sys.argv[1]))
"""


@pytest.mark.parametrize("power", ["strong", "weak"])
def test_ids_stay_and_mounts_are_seen_inside_alone(tmp_path: Path, power: str) -> None:
    if not may_mount(os.geteuid()):
        pytest.skip("NOT TESTED HERE: this user may not mount anything, not even in a namespace of its own")
    argv = [sys.executable, "-c", ENTERING, str(tmp_path), power, ENTERING]
    ended = subprocess.run(argv, capture_output=True, text=True, check=True)
    user, all_ids, uid, gid, mounted = ended.stdout.split()
    assert (int(uid), int(gid), mounted) == (os.getuid(), os.getgid(), "True")
    root = os.geteuid() == 0
    assert (user, all_ids) == (str(not root or power == "weak"), str(root))
    assert not os.path.ismount(tmp_path)


def test_a_mapping_of_one_id_knows_no_other_owner(tmp_path: Path) -> None:
    about = tmp_path.stat()
    assert IdMapping(user=True, alone=(about.st_uid, about.st_gid)).knows(about)
    assert not IdMapping(user=True, alone=(about.st_uid, about.st_gid + 1)).knows(about)
    assert IdMapping(user=True).knows(about)
