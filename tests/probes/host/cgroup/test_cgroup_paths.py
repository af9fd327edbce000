"""Where a process's control groups lie."""

from __future__ import annotations

import pytest

from rn50_advisor.probes.host.cgroup.cgroup_paths import below_mount, membership_for, parse_membership


@pytest.mark.parametrize(
    ("path", "mount_root", "expected"),
    [
        ("/", "/", ""),
        ("/system.slice/job.service", "/", "system.slice/job.service"),
        ("/docker/abc", "/docker/abc", ""),
        ("/docker/abc/rank1", "/docker/abc", "rank1"),
        ("/docker/abcdef", "/docker/abc", None),  # a name that only begins alike
        ("/", "/docker/abc", None),
        ("/../../user.slice", "/", None),  # outside of our cgroup namespace: no name leads there
        ("/../../user.slice", "/../..", "user.slice"),  # unless the host's tree is mounted
        ("/../user.slice", "/../..", None),
        ("/../..", "/..", None),
    ],
)
def test_place_below_a_mount(path: str, mount_root: str, expected: str | None) -> None:
    assert below_mount(path, mount_root) == expected


@pytest.mark.parametrize(
    ("text", "controller", "path", "v2"),
    [
        ("0::/user.slice\n", "cpu", "/user.slice", True),
        ("4:memory:/m\n3:cpu,cpuacct:/c\n0::/u\n", "cpu", "/c", False),
        ("4:memory:/m\n3:cpuacct:/wrong\n2:cpu:/c\n0::/u\n", "cpu", "/c", False),
        ("1:name=systemd:/s\n0::/u\n", "memory", "/u", True),
        ("2:cpuset:/with:colon\n0::/a:b\n", "cpu", "/a:b", True),
    ],
)
def test_the_hierarchy_of_a_controller(text: str, controller: str, path: str, v2: bool) -> None:
    found = membership_for(controller, parse_membership(text))
    assert found is not None
    assert (found.path, found.v2) == (path, v2)
