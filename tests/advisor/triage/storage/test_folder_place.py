"""Where a folder lies, and the scratch folder that leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from disk_files import place
from rn50_advisor.advisor.run.rings.own_folder import LOCK
from rn50_advisor.advisor.triage.storage.folder_place import PREFIX, Place, scratch_folder

_ROOT = Path(__file__).resolve().parents[4]


def test_a_scratch_folder_below_a_relative_one_is_found_by_children(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They live in it, and pass it to torch as a URI."""
    monkeypatch.chdir(tmp_path)
    Path("here").mkdir()
    with scratch_folder(Path("here")) as folder:
        assert folder.is_absolute() and folder.parent == tmp_path / "here" and folder.as_uri()


def test_the_folder_goes_away_with_its_contents(tmp_path: Path) -> None:
    with scratch_folder(tmp_path) as folder:
        (folder / "x").write_text("x")
        assert folder.parent == tmp_path and folder.stat().st_mode & 0o77 == 0
    with pytest.raises(KeyboardInterrupt), scratch_folder(tmp_path):
        raise KeyboardInterrupt
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_the_folder_goes_away_on_a_signal(tmp_path: Path, number: signal.Signals) -> None:
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom rn50_advisor.advisor.triage.storage.folder_place import scratch_folder\n"
        "with scratch_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'x').write_text('x')\n    print('ready', flush=True)\n    time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=_ROOT) as process:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        assert list(tmp_path.iterdir())
        process.send_signal(number)
        process.wait(60)
    assert list(tmp_path.iterdir()) == []


def left_behind(where: Path, **changes: str) -> Path:
    """A folder of a killed triage. `changes`: to its marker."""
    program = (
        "import os, sys\nfrom pathlib import Path\nfrom rn50_advisor.advisor.triage.storage.folder_place import scratch_folder\n"
        "with scratch_folder(Path(sys.argv[1])) as folder:\n"
        "    (folder / 'cache').mkdir()\n    (folder / 'cache/x').write_text('x')\n"
        "    print(folder, flush=True)\n    os._exit(0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, str(where)], capture_output=True, text=True, check=True, cwd=_ROOT
    )
    folder = Path(done.stdout.strip())
    for here, there in changes.items():
        marker = (folder / LOCK).read_text()
        (folder / LOCK).write_text(marker.replace(Path(f"/proc/sys/kernel/random/{here}").read_text().strip(), there))
    return folder


def test_what_a_killed_one_left_goes_with_the_next(tmp_path: Path) -> None:
    left = left_behind(tmp_path)
    with scratch_folder(tmp_path) as alive:
        assert not left.exists()
        other = tmp_path / f"{PREFIX}12345-678-abcdefgh"
        (other / "of a user").mkdir(parents=True, mode=0o700)
        with scratch_folder(tmp_path):
            assert alive.exists() and other.exists()


def test_what_may_be_another_machines_goes_after_a_day(tmp_path: Path) -> None:
    now, then = (left_behind(tmp_path, boot_id=name) for name in ("now", "then"))
    two_days_ago = time.time() - 2 * 86_400
    os.utime(then, (two_days_ago, two_days_ago))
    with scratch_folder(tmp_path):
        assert now.exists() and not then.exists()


@pytest.mark.parametrize(
    ("mount", "limits", "remedy"),
    [
        ({"model": "Amazon EC2 NVMe Instance Storage"}, {}, "hand-back"),
        ({"model": "Amazon Elastic Block Store"}, {}, "fix"),
        ({"model": "nvme_card-pd"}, {}, "fix"),
        ({"model": "nvme_card"}, {}, "hand-back"),
        ({"model": "SAMSUNG MZQL2"}, {"disk.limit_read_bytes_s": 1e6}, "fix"),
        ({"disk": "vda"}, {}, "fix"),
        (
            {"disk": "md0", "below": ("nvme1n1", "nvme2n1"), "model": "Amazon EC2 NVMe Instance Storage"},
            {},
            "hand-back",
        ),
        ({"disk": "dm-0", "below": ("nvme1n1",), "model": "SAMSUNG MZQL2"}, {}, "hand-back"),
        ({"disk": "md0", "below": ("nvme1n1", "nvme2n1"), "model": "Amazon Elastic Block Store"}, {}, "fix"),
        ({"disk": "md0", "below": ("nvme1n1", "sda"), "model": "SAMSUNG MZQL2"}, {}, "fix"),
        ({"disk": "md0", "below": (), "model": "SAMSUNG MZQL2"}, {}, "fix"),  # on nothing that can be seen
        ({"disk": "loop0", "below": ("nvme0n1",), "model": "SAMSUNG MZQL2"}, {}, "fix"),
        ({"disk": None, "network": True, "fs_type": "nfs4"}, {}, "fix"),
    ],
)
def test_only_the_machines_own_disk_is_a_reason_to_give_it_back(
    tmp_path: Path, mount: dict[str, object], limits: dict[str, float], remedy: str
) -> None:
    base = place(tmp_path, **mount)
    assert Place(base.folder, base.mount, limits).remedy == remedy
