"""Files to read, and the storage they are on. Not a test."""

from __future__ import annotations

import os
from pathlib import Path

from rn50_advisor.advisor.triage.storage.folder_place import Place
from rn50_advisor.probes.host.storage.disk_probe import Mount


def files(folder: Path, count: int, size: int) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = [folder / f"{number}.jpg" for number in range(count)]
    for path in paths:
        path.write_bytes(os.urandom(size))
    return paths


def place(tmp_path: Path, **mount: object) -> Place:
    given = {"device": "/dev/x", "mount_point": "/", "fs_type": "ext4", "network": False, "disk": "nvme0n1", **mount}
    return Place(tmp_path, Mount(**given), {})  # type: ignore[arg-type]
