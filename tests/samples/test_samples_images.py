"""The sample images: the same bytes for the same seed, sizes as in ImageNet, and never a half file."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

pytest.importorskip("PIL", reason="Pillow not installed: pip install '.[train]'")
import psutil
from PIL import Image

SCRIPT = Path(__file__).resolve().parents[2] / "samples" / "make_images.py"
SMALL = ("--classes", "2", "--per-class", "3", "--val-per-class", "1", "--scale", "0.25")


def make(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(SCRIPT), str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*.jpg"))}


def processes_of_group(group: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def test_the_same_seed_gives_the_same_bytes_on_any_number_of_cores(tmp_path: Path) -> None:
    assert make(tmp_path / "a", *SMALL).returncode == 0
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        assert make(tmp_path / "b", *SMALL).returncode == 0
    finally:
        os.sched_setaffinity(0, cores)
    assert make(tmp_path / "c", *SMALL, "--seed", "1").returncode == 0
    assert len(contents(tmp_path / "a")) == 8
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    assert not set(contents(tmp_path / "a").values()) & set(contents(tmp_path / "c").values())


def test_all_pictures_of_a_folder_differ(tmp_path: Path) -> None:
    make(tmp_path, *SMALL)
    assert len(set(contents(tmp_path).values())) == 8


def test_sizes_are_those_of_imagenet(tmp_path: Path) -> None:
    done = make(tmp_path, "--classes", "4", "--per-class", "20", "--val-per-class", "0")
    assert done.returncode == 0, done.stderr
    files = list(tmp_path.rglob("*.jpg"))
    bytes_of = [path.stat().st_size for path in files]
    formats = Counter(Image.open(path).size for path in files)
    # seeded, so these are facts and not chances: 110 KB on average, spread by about a third, most of them 500x375
    assert 95_000 < sum(bytes_of) / len(bytes_of) < 125_000
    assert min(bytes_of) < 75_000 and max(bytes_of) > 150_000
    assert formats.most_common(1)[0][0] == (500, 375)
    assert {(500, 375), (375, 500), (500, 333)} <= set(formats)
    assert f"mean {sum(bytes_of) / len(bytes_of) / 1000:.1f} KB" in done.stdout


def test_what_is_missing_is_made_again_and_the_rest_left_alone(tmp_path: Path) -> None:
    make(tmp_path, *SMALL)
    before = contents(tmp_path)
    lost, kept = sorted(tmp_path.rglob("*.jpg"))[:2]
    lost.unlink()
    changed_at = kept.stat().st_mtime_ns
    (lost.parent / f"{lost.name}.123.part").write_bytes(b"half")
    assert "1 made" in make(tmp_path, *SMALL).stdout
    assert contents(tmp_path) == before
    assert kept.stat().st_mtime_ns == changed_at
    assert not list(tmp_path.rglob("*.part"))
    assert "all there already" in make(tmp_path, *SMALL).stdout


@pytest.mark.parametrize(
    "other", [("--seed", "5"), ("--scale", "0.5"), ("--classes", "1"), ("--per-class", "2")], ids=lambda a: a[0]
)
def test_a_folder_of_other_images_is_refused(tmp_path: Path, other: tuple[str, str]) -> None:
    make(tmp_path, *SMALL)
    before = contents(tmp_path)
    refused = make(tmp_path, *SMALL, *other)
    assert refused.returncode == 1
    assert "other images" in refused.stderr and "Traceback" not in refused.stderr
    assert contents(tmp_path) == before


def test_somebody_elses_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("mine")
    refused = make(tmp_path, *SMALL)
    assert refused.returncode == 1 and "not empty" in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_a_folder_may_grow(tmp_path: Path) -> None:
    make(tmp_path, *SMALL)
    before = contents(tmp_path)
    assert make(tmp_path, *SMALL, "--per-class", "4").returncode == 0
    after = contents(tmp_path)
    assert len(after) == 10 and before.items() <= after.items()


@pytest.mark.parametrize(("signum", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_signal_leaves_no_half_file_and_no_process(tmp_path: Path, signum: signal.Signals, code: int) -> None:
    many = ("--classes", "2", "--per-class", "2000", "--scale", "0.25")
    command = [sys.executable, str(SCRIPT), str(tmp_path), *many]
    # a session of its own, so that the whole group can get the signal as from a terminal
    child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
    assert child.stdout and "making images" in child.stdout.readline()
    os.killpg(child.pid, signum) if signum is signal.SIGINT else child.send_signal(signum)
    _, errors = child.communicate(timeout=60)
    assert child.returncode == code
    assert "Traceback" not in errors
    # multiprocessing's own tracker is just ending
    _, alive = psutil.wait_procs(processes_of_group(child.pid), timeout=10)
    assert not alive
    written = list(tmp_path.rglob("*.jpg"))
    assert 0 < len(written) < 4000
    assert not list(tmp_path.rglob("*.part"))
    for path in written:
        Image.open(path).load()  # raises on a truncated file
