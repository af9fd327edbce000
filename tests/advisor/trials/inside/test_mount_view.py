"""Which mounts a path leads to, by the lines of /proc/self/mountinfo."""

from __future__ import annotations

import pytest

from rn50_advisor.advisor.trials.inside.mount_view import is_below, is_within, parse, parts, visible


def line(number: int, parent: int, point: str, rest: str = "rw,relatime - ext4 /dev/sda rw") -> str:
    return f"{number} {parent} 8:1 / {point} {rest}"


def points(*lines: str) -> list[tuple[int, str]]:
    return [(mount.number, mount.point) for mount in visible(parse("\n".join(lines)))]


def test_reads_names_with_spaces_options_of_both_kinds_and_optional_fields() -> None:
    text = (
        "36 35 98:0 /mnt1 /mnt\\040with\\134it ro,noatime shared:7 master:1 - nfs4 server:/a\\040b rw,vers=4.2\n"
        "37 35 98:0 / /data rw,nosuid - squashfs /dev/loop0 ro\n"
        "a line of another kind\n"
    )
    first, second = parse(text)
    assert (first.point, first.source, first.fs_type) == ("/mnt with\\it", "server:/a b", "nfs4")
    assert first.options == {"ro", "noatime"} and first.read_only
    assert second.read_only, "the file system is read-only, though the mount is not"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([line(1, 0, "/"), line(3, 1, "/a/b"), line(2, 1, "/c")], [(1, "/"), (3, "/a/b"), (2, "/c")]),
        ([line(1, 0, "/"), line(2, 1, "/a"), line(3, 2, "/a")], [(1, "/"), (3, "/a")]),  # on top of another
        ([line(1, 0, "/"), line(2, 1, "/a/b"), line(3, 1, "/a")], [(1, "/"), (3, "/a")]),  # under a later one
        ([line(1, 0, "/"), line(2, 1, "/a/b"), line(4, 2, "/a/b/c"), line(3, 1, "/a")], [(1, "/"), (3, "/a")]),
        ([line(1, 0, "/"), line(2, 1, "/a"), line(3, 2, "/a/b"), line(4, 2, "/a")], [(1, "/"), (4, "/a")]),
        ([line(1, 0, "/"), line(2, 1, "/ab"), line(3, 1, "/a")], [(1, "/"), (3, "/a"), (2, "/ab")]),
        ([line(1, 1, "/"), line(2, 1, "/a")], [(1, "/"), (2, "/a")]),  # a root that is its own parent
        ([line(5, 4, "/a")], [(5, "/a")]),  # the root is no mount of this namespace
        ([], []),
    ],
)
def test_mounts_that_others_hide_are_left_out(lines: list[str], expected: list[tuple[int, str]]) -> None:
    assert points(*lines) == expected


@pytest.mark.parametrize(
    ("path", "folder", "below"),
    [("/a/b", "/a", True), ("/a", "/a", False), ("/ab", "/a", False), ("/a", "/", True), ("/", "/", False)],
)
def test_names_that_begin_alike_are_not_below(path: str, folder: str, below: bool) -> None:
    assert is_below(path, folder) is below
    assert is_within(path, folder) is (below or path == folder)
    assert parts("/a//b/") == ("a", "b")
