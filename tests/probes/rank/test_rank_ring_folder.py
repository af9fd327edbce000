"""Where the recorder writes: into the folder of a living advisor of its own user, whole files, while the memory has room for them."""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from rn50_advisor.advisor.run.launch.job_environment import inherited_environment, with_recorder
from rn50_advisor.advisor.run.rings.own_folder import LOCK, hold
from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.probes.rank import rank_ring_folder
from rn50_advisor.probes.rank.facts.process_facts import Facts
from rn50_advisor.probes.rank.layout import ROLE_RANK
from rn50_advisor.probes.rank.ring import Ring

ROOT = str(Path(__file__).resolve().parents[3] / "src")
OTHER_UID = 12345
is_root = pytest.mark.skipif(os.geteuid() != 0, reason="OTHER USERS ARE NOT TESTED: root is needed")


@pytest.fixture(autouse=True)
def nothing_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rank_ring_folder, "_seen", {})


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    made = tmp_path / "rings"
    made.mkdir(mode=0o700)
    lock = hold(made)
    yield made
    os.close(lock)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != LOCK)


def dead(folder: Path) -> None:
    os.close(hold(folder))


def open_to_all(folder: Path) -> None:
    folder.chmod(0o777)


def unmarked(folder: Path) -> None:
    (folder / LOCK).unlink()


def marked_by_a_link(folder: Path) -> None:
    (folder / LOCK).rename(folder.parent / LOCK)
    (folder / LOCK).symlink_to(folder.parent / LOCK)


def linked(folder: Path) -> None:
    folder.rename(folder.parent / "aside")
    folder.symlink_to(folder.parent / "aside")


def anothers(folder: Path) -> None:
    os.chown(folder, OTHER_UID, OTHER_UID)


def anothers_marker(folder: Path) -> None:
    os.chown(folder / LOCK, OTHER_UID, OTHER_UID)


def gone(folder: Path) -> None:
    folder.rename(folder.parent / "aside")


def a_file(folder: Path) -> None:
    gone(folder)
    folder.touch(mode=0o700)


UNFIT = [
    dead, open_to_all, unmarked, marked_by_a_link, linked, gone, a_file,
    pytest.param(anothers, marks=is_root), pytest.param(anothers_marker, marks=is_root),
]  # fmt: skip
# that of a torch which the recorder does not fit: it says so in the folder once it is armed
LOOKS = "import sys, torch; print(any(m.startswith('_rn50_advisor_rank.install') for m in sys.modules))"


def a_job(folder: Path) -> str:
    (folder.parent / "torch.py").write_text("")
    environment = with_recorder(inherited_environment(), folder)
    command = [sys.executable, "-c", LOOKS]
    done = subprocess.run(command, cwd=folder.parent, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_living_advisors_folder_arms(folder: Path) -> None:
    assert a_job(folder) == "True\n" and len(names(folder)) == 1


@pytest.mark.parametrize("spoil", UNFIT)
def test_no_other_folder_arms_nor_is_written_to(folder: Path, spoil: Callable[[Path], None]) -> None:
    spoil(folder)
    assert a_job(folder) == "False\n"
    for left in (folder, folder.parent / "aside"):
        assert not left.is_dir() or names(left) == []


WRITES: list[Callable[[str], Any]] = [
    lambda path: Ring(path + "/rank-1.ring", slots=16, role=ROLE_RANK),
    lambda path: rank_ring_folder.put(path, "facts-1.json", "{}"),
    lambda path: rank_ring_folder.note_error(path, "ValueError: odd"),
]


@pytest.mark.parametrize("write", WRITES, ids=["ring", "file", "note"])
def test_what_a_process_writes_is_its_users_alone(folder: Path, write: Callable[[str], Any]) -> None:
    usual = os.umask(0)
    try:
        write(str(folder))
    finally:
        os.umask(usual)
    [path] = [path for path in folder.iterdir() if path.name != LOCK]
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


@pytest.mark.parametrize("write", WRITES, ids=["ring", "file", "note"])
@pytest.mark.parametrize("spoil", [dead, open_to_all, linked, gone, a_file, pytest.param(anothers, marks=is_root)])
def test_a_process_that_was_armed_writes_nothing_once_the_folder_is_no_longer_that(
    folder: Path, write: Callable[[str], Any], spoil: Callable[[Path], None]
) -> None:
    assert rank_ring_folder.arm(str(folder))
    spoil(folder)
    with pytest.raises(OSError):
        write(str(folder))
    for left in (folder, folder.parent / "aside"):
        assert not left.is_dir() or names(left) == []
    assert rank_ring_folder.owner_is_gone(str(folder))


@pytest.mark.parametrize("write", WRITES, ids=["ring", "file", "note"])
def test_a_folder_in_the_place_of_the_one_that_was_armed_is_not_written_to(
    folder: Path, write: Callable[[str], Any]
) -> None:
    assert rank_ring_folder.arm(str(folder))
    gone(folder)
    folder.mkdir(mode=0o700)
    lock = hold(folder)
    with pytest.raises(PermissionError):
        write(str(folder))
    assert names(folder) == []
    os.close(lock)


def test_links_in_the_places_of_our_files_lead_nowhere(folder: Path, tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("secret")
    theirs.chmod(0o600)
    note = folder / f"error-{os.getpid()}.txt"
    for name in (note.name, "facts-1.json", "rank-1.ring", "rank-1.ring.new", "budget"):
        (folder / name).symlink_to(theirs)
    WRITES[0](str(folder))
    WRITES[1](str(folder))
    with pytest.raises(OSError, match="symbolic"):
        WRITES[2](str(folder))
    with pytest.raises(OSError, match="symbolic"):
        rank_ring_folder.read(str(folder), "budget")
    assert theirs.read_text() == "secret" and note.is_symlink()


def test_pipes_hold_nobody_up(folder: Path) -> None:
    for name in (f"error-{os.getpid()}.txt", "deep.json"):
        os.mkfifo(folder / name)
    with pytest.raises(OSError, match="No such device"):
        rank_ring_folder.note_error(str(folder), "x")
    assert rank_ring_folder.read(str(folder), "deep.json") == ""


def test_a_file_is_read_whole_whenever_it_is_read(folder: Path) -> None:
    """Written again and again by two threads."""
    texts = ["a" * 5000, "b" * 9000]
    over = threading.Event()

    def write(text: str) -> None:
        while not over.is_set():
            rank_ring_folder.put(str(folder), "facts-1.json", text)

    threads = [threading.Thread(target=write, args=(text,)) for text in texts]
    rank_ring_folder.put(str(folder), "facts-1.json", texts[0])
    for thread in threads:
        thread.start()
    seen = {(folder / "facts-1.json").read_text() for _ in range(300)}
    over.set()
    for thread in threads:
        thread.join()
    assert seen <= set(texts)
    assert names(folder) == ["facts-1.json"]


THREADS = """
import sys, threading
sys.path.insert(0, sys.argv[1])
from rn50_advisor.probes.rank.layout import ROLE_RANK
from rn50_advisor.probes.rank.ring import Ring
at = threading.Barrier(8)
def become():
    for _ in range(200):
        at.wait()
        ring = Ring(sys.argv[2] + "/rank-1.ring", slots=1024, role=ROLE_RANK)
        ring.phase(1, 2, 3)
        ring.end()
threads = [threading.Thread(target=become) for _ in range(8)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


def test_threads_that_make_a_ring_of_one_name_never_cut_each_others_short(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", THREADS, ROOT, str(folder)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert names(folder) == ["rank-1.ring"]
    assert RingReader(folder / "rank-1.ring").position().ended


IN_SMALL_MEMORY = 'mount -t tmpfs -o mode=0700,size="$1" none "$2" && shift 2 && exec "$@"'


def in_memory_of(size: str, folder: Path, code: str) -> str:
    """Output of the code where the folder is a tmpfs of this size."""
    program = "import os, sys\nfolder, root = sys.argv[1:]\nsys.path.insert(0, root)\n" + code
    mounted = ["unshare", "--mount", "sh", "-c", IN_SMALL_MEMORY, "sh", size, str(folder)]
    done = subprocess.run(
        [*mounted, sys.executable, "-c", program, str(folder), ROOT], capture_output=True, text=True, check=False
    )
    if "mount" in done.stderr:
        pytest.skip(f"SMALL MEMORY IS NOT TESTED: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    return done.stdout


MAKES = """
from pathlib import Path
from rn50_advisor.advisor.run.rings.ring_reader import RingReader
from rn50_advisor.probes.rank.layout import *
from rn50_advisor.probes.rank.ring import Ring
try:
    ring = Ring(folder + "/rank-1.ring", slots=RANK_SLOTS, role=ROLE_RANK)
    for step in range(2000):
        ring.write(KIND_STEP, 0, [step] * len(STEP_FIELDS))
    drained = RingReader(Path(folder, "rank-1.ring")).drain()
    print(ring._slots, len(drained.rows[KIND_STEP]), drained.lost)
except OSError as error:
    print(error.strerror)
print(sorted(os.listdir(folder)) == [f"error-{os.getpid()}.txt"])
"""


@pytest.mark.parametrize(
    ("size", "said"),
    [
        ("64m", ["1024 1023 977", "False"]),
        ("16m", ["256 255 1745", "False"]),
        ("5m", ["128 127 1873", "False"]),
        ("1m", ["128 127 1873", "False"]),
        ("512k", ["no room for rank-1.ring", "True"]),
        ("8k", ["no room for rank-1.ring", "True"]),
    ],
)
def test_a_ring_takes_little_of_the_memory_that_is_free_or_none(folder: Path, size: str, said: list[str]) -> None:
    assert in_memory_of(size, folder, MAKES).splitlines() == said


def test_a_full_memory_costs_a_refresh_and_no_error(folder: Path) -> None:
    code = """
from rn50_advisor.probes.rank.facts.process_facts import Facts
facts = Facts(folder)
facts.active = True
facts.update({"state": "before"})
space = os.statvfs(folder)
with open(folder + "/theirs", "wb") as file:
    os.posix_fallocate(file.fileno(), 0, space.f_bavail * space.f_frsize)
facts.update({"state": "after"})
print(open(folder + "/facts-%d.json" % os.getpid()).read())
"""
    assert json.loads(in_memory_of("1m", folder, code))["state"] == "before"


def test_a_job_that_may_write_no_such_file_is_not_ended_for_it(folder: Path) -> None:
    """SIGXFSZ ends a process by default; Python ignores it, unless a job restores it."""
    code = (
        "import resource, signal, sys; sys.path.insert(0, sys.argv[1])\n"
        "from rn50_advisor.probes.rank.layout import ROLE_RANK\nfrom rn50_advisor.probes.rank.ring import Ring\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\nresource.setrlimit(resource.RLIMIT_FSIZE, (20000, 20000))\n"
        "try:\n    Ring(sys.argv[2] + '/rank-1.ring', slots=1024, role=ROLE_RANK)\nexcept OSError as error:\n    print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, ROOT, str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0 and "no room" in done.stdout, done.stderr


def test_facts_of_a_process_that_may_write_no_more_stay_as_they_were(folder: Path) -> None:
    facts = Facts(str(folder))
    facts.active = True
    facts.update({"state": "before"})
    dead(folder)
    facts.update({"state": "after"})
    assert json.loads((folder / f"facts-{os.getpid()}.json").read_text())["state"] == "before"
