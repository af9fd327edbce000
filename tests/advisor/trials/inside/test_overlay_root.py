"""No file system stays writable unseen: the check that looks at the finished root, and what it is built from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rn50_advisor.advisor.trials.inside import overlay_root, system_calls
from rn50_advisor.advisor.trials.inside.namespaces import IdMapping
from rn50_advisor.advisor.trials.inside.overlay_root import NotCovered, OverlayRoot, Plan, _escaped

ROOT = "1 0 0:1 / / ro - ext4 /dev/sda rw\n"


def checked(tmp_path: Path, *lines: str) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(ROOT + "\n".join(lines) + "\n")
    plan = Plan(private="/tmp/private", place="/tmp/private/1-2", cwd="/work", keep=("/keep",))
    OverlayRoot(plan, IdMapping(user=False), mountinfo).verify(mountinfo)


@pytest.fixture(autouse=True)
def every_path_can_be_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though the paths of most tests do not exist."""
    monkeypatch.setattr(overlay_root, "_can_be_entered", lambda path: path != "/run/user/1000/doc")


@pytest.fixture(autouse=True)
def the_folder_is_left_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    """A root is built in a folder of its own, in which the process then is: later tests read files of this repository."""
    monkeypatch.chdir(Path.cwd())


@pytest.mark.parametrize(
    "line",
    [
        "2 1 0:2 / /data ro - nfs server:/data rw",
        "2 1 0:2 / /data rw - squashfs /dev/loop1 ro",
        "2 1 0:2 / /keep rw - ext4 /dev/sda rw",
        "2 1 0:2 / /keep/below rw - nfs server:/runs rw",
        "2 1 0:2 / /run/rpc rw - rpc_pipefs sunrpc rw",
        "2 1 0:2 / /sys/fs/cgroup rw - tmpfs tmpfs rw",
        "2 1 0:2 / /dev/hugepages rw - hugetlbfs none rw",
        "2 1 0:2 / /run/user/1000/doc rw - fuse.portal portal rw",
    ],
)
def test_what_is_read_only_kept_or_no_storage_may_stay(tmp_path: Path, line: str) -> None:
    checked(tmp_path, line)


@pytest.mark.parametrize("point", ["/data", "/keepsake", "/home/some\\040one", "/dev/shm"])
def test_a_file_system_that_stays_writable_is_named(tmp_path: Path, point: str) -> None:
    with pytest.raises(NotCovered, match=point.replace("\\040", " ")):
        checked(tmp_path, f"2 1 0:2 / {point} rw - ext4 /dev/sdb rw")


def test_a_root_that_stays_writable_is_named(tmp_path: Path) -> None:
    with pytest.raises(NotCovered, match="/ "):
        checked(tmp_path, "2 1 0:2 / / rw - ext4 /dev/sdb rw")


def test_a_plan_names_real_folders(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    link, real = str(tmp_path / "link"), str(tmp_path / "real")
    plan = Plan.of({"private": link, "keep": [link], "wanted": [link]}, f"{link}/1-2", "/work")
    assert plan == Plan(real, f"{real}/1-2", "/work", (real,), None, ("/work", real))


def test_characters_that_divide_mount_options_are_escaped() -> None:
    assert _escaped("/a b,c:d\\e") == "/a b\\,c\\:d\\\\e"


@pytest.mark.parametrize("gone", ["folder", "file", "link"])
def test_what_somebody_removes_meanwhile_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: str
) -> None:
    divided, place = tmp_path / "divided", tmp_path / "place"
    (divided / "folder").mkdir(parents=True)
    (divided / "file").touch()
    (divided / "link").symlink_to("file")
    (divided / "stays").mkdir()
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(ROOT)
    root = OverlayRoot(Plan(str(tmp_path / "private"), str(place), "/"), IdMapping(user=False), mountinfo)
    new = Path(f"{place}/root{divided}")
    new.mkdir(parents=True)
    (place / "layers").mkdir()

    def entries_then_gone(folder: str) -> list[os.DirEntry[str]]:
        found = sorted(os.scandir(folder), key=lambda entry: entry.name)
        path = divided / gone
        path.rmdir() if path.is_dir() else path.unlink()
        return found

    mounted = list[str]()

    def mount(source: str, target: str, fs_type: str | None = None, *, flags: int = 0, data: str | None = None) -> None:
        if fs_type is None and not Path(source).exists():
            raise FileNotFoundError(source)
        mounted.append(target)

    monkeypatch.setattr(overlay_root, "entries", entries_then_gone)
    monkeypatch.setattr(system_calls, "mount", mount)
    root._divide(str(divided), None)
    assert f"{new}/stays" in mounted
    assert not (new / gone).is_file()


def test_an_entry_that_cannot_be_covered_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "divided" / "folder").mkdir(parents=True)
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(ROOT)
    root = OverlayRoot(Plan(str(tmp_path / "private"), str(tmp_path / "place"), "/"), IdMapping(user=False), mountinfo)
    (tmp_path / "place" / "layers").mkdir(parents=True)

    def mount(source: str, target: str, fs_type: str | None = None, *, flags: int = 0, data: str | None = None) -> None:
        if target.endswith("folder"):
            raise PermissionError(target)

    Path(f"{tmp_path}/place/root{tmp_path}/divided").mkdir(parents=True)
    monkeypatch.setattr(system_calls, "mount", mount)
    with pytest.raises(PermissionError):
        root._divide(str(tmp_path / "divided"), None)
