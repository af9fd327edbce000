"""A sweep removes folders that we made and whose maker is dead, and nothing else, however similar."""

from __future__ import annotations

import fcntl
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dead_folders import MAKES, ROOT, of_a_dead_advisor
from memory_folders import memory_folder
from rn50_advisor.advisor.run.rings.agent_ring_folder import PREFIX, RingFolder, sweep
from rn50_advisor.advisor.run.rings.own_folder import LOCK, OwnFolder, hold, private_folder, remove_tree


@pytest.fixture
def place() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


OTHER_UID = 12345
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="OTHER USERS ARE NOT TESTED: root is needed")


def tree(place: Path) -> dict[str, bytes | str]:
    """All that lies below, links as what they say."""
    found: dict[str, bytes | str] = {}
    for path in sorted(place.rglob("*")):
        kind = str(path.readlink()) if path.is_symlink() else path.read_bytes() if path.is_file() else "folder"
        found[str(path.relative_to(place))] = kind
    return found


def stays(place: Path) -> None:
    before = tree(place)
    assert before and sweep([place]) == 0
    assert tree(place) == before


def test_a_dead_advisors_folder_goes(place: Path) -> None:
    folder = of_a_dead_advisor(place)
    assert sweep([place]) == 1 and not folder.exists()


def test_what_a_user_named_like_ours_stays(place: Path) -> None:
    for name in ("runs", "venv", "triage-notes", "abcdefgh", "1-2", "12345-678-abcdefgh", "12345-678-abcdefgh.old"):
        recordings = place / f"{PREFIX}{name}" / "20250101-000000"
        recordings.mkdir(parents=True)
        recordings.parent.chmod(0o700)
        (recordings / "run.sqlite").write_text("a week of training")
        (recordings.parent / "rank-1.ring").write_text("named like ours")
    (place / f"{PREFIX}file").write_text("")
    stays(place)


@pytest.mark.parametrize(
    "marker",
    [
        "",
        "made by rn50-advisor\n",
        "made by rn50-advisor\n12345\n678\n0\nboot\npid:[1]\n",
        "made by rn50-advisor\n12345\n679\n{uid}\n{boot}\n{namespace}\n",
        "made by rn50-advisor\n12345\n678\n{uid}\n{boot}\n{namespace}\nand more\n",
        "made by another\n12345\n678\n{uid}\n{boot}\n{namespace}\n",
        "\udcff",
        "x" * 10_000,
    ],
    ids=["empty", "cut off", "another boot", "another process", "more", "another program", "no text", "long"],
)
def test_a_marker_that_we_did_not_write_proves_nothing(place: Path, marker: str) -> None:
    folder = place / f"{PREFIX}12345-678-abcdefgh"
    folder.mkdir(mode=0o700)
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    marker = marker.format(uid=os.geteuid(), boot=boot, namespace=Path("/proc/self/ns/pid").readlink())
    (folder / LOCK).write_bytes(marker.encode(errors="surrogateescape"))
    (folder / "rank-1.ring").write_text("x")
    stays(place)


def test_an_unknown_file_keeps_the_folder_and_what_names_it(place: Path) -> None:
    folder = of_a_dead_advisor(place)
    (folder / "checkpoint.pt").write_text("the job's own")
    assert sweep([place]) == 0
    assert tree(folder).keys() == {"checkpoint.pt", LOCK}
    (folder / "checkpoint.pt").unlink()
    assert sweep([place]) == 1


def test_links_and_folders_named_like_our_files_stay(place: Path, tmp_path: Path) -> None:
    (tmp_path / "theirs").write_text("x")
    folder = of_a_dead_advisor(place)
    (folder / "facts-1.json").symlink_to(tmp_path / "theirs")
    (folder / "times-1.json").mkdir()
    assert sweep([place]) == 0
    assert (folder / "facts-1.json").is_symlink() and (folder / "times-1.json").is_dir()
    assert (tmp_path / "theirs").read_text() == "x"


def test_no_link_is_followed(place: Path) -> None:
    """Neither one in the place of the folder nor one in that of its marker."""
    folder = of_a_dead_advisor(place)
    aside = folder.rename(place / "aside")
    folder.symlink_to(aside)
    stays(place)
    folder.unlink()
    folder.mkdir(mode=0o700)
    (folder / LOCK).symlink_to(aside / LOCK)
    stays(place)


def test_a_marker_that_is_a_pipe_holds_nobody_up(place: Path) -> None:
    folder = place / f"{PREFIX}12345-678-abcdefgh"
    folder.mkdir(mode=0o700)
    os.mkfifo(folder / LOCK)
    assert sweep([place]) == 0 and folder.exists()


def test_a_folder_that_others_may_enter_stays(place: Path) -> None:
    of_a_dead_advisor(place).chmod(0o755)
    stays(place)


def test_a_living_advisors_folder_stays_and_goes_with_it(place: Path) -> None:
    folder = RingFolder(places=[place])
    stays(place)
    folder.close(remove=True)
    assert list(place.iterdir()) == []


def test_a_maker_that_lives_is_believed_without_its_lock(place: Path) -> None:
    """The lock goes where somebody closes all descriptors of the process."""
    folder = OwnFolder(place, PREFIX)
    os.close(folder._lock)
    stays(place)


def test_a_forked_child_holds_the_folder_on(place: Path) -> None:
    code = MAKES + "if os.fork() == 0:\n    sys.stdin.read()\n"
    command = [sys.executable, "-c", code, ROOT, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None and process.stdin is not None
        process.stdout.readline()
        process.wait(60)
        stays(place)
    # its stdin was closed; the child has gone when it has let go of stdout
    assert process.stdout.closed
    [folder] = place.iterdir()
    with (folder / LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # when the child has ended
    assert sweep([place]) == 1


def test_a_living_advisor_of_another_pid_namespace_keeps_its_folder(place: Path) -> None:
    under = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if subprocess.run([*under, "true"], capture_output=True, check=False).returncode:
        pytest.skip("PID NAMESPACES ARE NOT TESTED: none can be made here")
    code = MAKES + "sys.stdin.read()\n"
    command = [*under, sys.executable, "-c", code, ROOT, str(place)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        folder = Path(process.stdout.readline().decode().strip())
        assert re.match(rf"{PREFIX}1-", folder.name), "its number means another process here"
        stays(place)
    assert sweep([place]) == 1, "its lock has gone with it, and process 1 of here is another"


@is_root
def test_another_users_folder_stays(place: Path) -> None:
    folder = of_a_dead_advisor(place)
    os.chown(folder, OTHER_UID, OTHER_UID)
    stays(place)
    os.chown(folder, 0, 0)
    os.chown(folder / LOCK, OTHER_UID, OTHER_UID)
    stays(place)


@is_root
def test_a_mount_on_our_folder_stays(place: Path) -> None:
    folder = of_a_dead_advisor(place)
    script = (
        'mount --bind "$1" "$1" && exec "$2" -c "import sys; sys.path.insert(0, sys.argv[1]); from pathlib import Path;'
        'from rn50_advisor.advisor.run.rings.agent_ring_folder import sweep; print(sweep([Path(sys.argv[2])]))" "$3" "$4"'
    )
    command = ["unshare", "--mount", "sh", "-c", script, "sh", str(folder), sys.executable, ROOT, str(place)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "mount" in done.stderr:
        pytest.skip(f"MOUNTS ARE NOT TESTED: {done.stderr.strip()}")
    assert done.stdout == "0\n", done.stderr
    assert (folder / "rank-999999999.ring").exists()


def test_who_sweeps_while_a_folder_is_made_does_not_take_it_for_a_dead_ones(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock: Callable[[int, int], None] = fcntl.flock
    swept: list[int] = []

    def sweep_first(descriptor: int, operation: int) -> None:
        monkeypatch.setattr("fcntl.flock", lock)
        swept.append(sweep([place]))
        lock(descriptor, operation)

    monkeypatch.setattr("fcntl.flock", sweep_first)
    folder = RingFolder(places=[place])
    assert swept == [0] and folder.path.exists()
    folder.close(remove=True)


def test_a_folder_in_the_place_of_the_one_that_was_made_is_left_alone(tmp_path: Path) -> None:
    own = OwnFolder(tmp_path, "test-")
    own.path.rename(tmp_path / "aside")
    own.path.mkdir()
    (own.path / "theirs").write_text("x")
    own.close(remove_tree)
    assert (own.path / "theirs").exists()


def test_where_a_marker_cannot_be_written_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int, data: bytes) -> int:
        raise OSError("No space left on device")

    monkeypatch.setattr("os.write", full)
    with pytest.raises(OSError, match="No space"):
        OwnFolder(tmp_path, "test-")
    assert list(tmp_path.iterdir()) == []


def test_hold_takes_a_folder_over(tmp_path: Path) -> None:
    for _ in range(2):
        os.close(hold(tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == [LOCK]


def test_a_private_folder_goes_at_the_end_and_with_it_those_of_dead_processes(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(place))
    dead, others = of_a_dead_advisor(place), place / f"{PREFIX}kept"
    others.mkdir()
    with pytest.raises(RuntimeError), private_folder(PREFIX) as folder:
        (folder / "file").write_text("x")
        assert folder.parent == place and not dead.exists()
        raise RuntimeError
    assert list(place.iterdir()) == [others]
