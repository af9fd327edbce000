"""Ring folders of an advisor that has died. Not a test."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = str(Path(__file__).resolve().parents[3] / "src")


MAKES = (
    "import os, sys; sys.path.insert(0, sys.argv[1])\n"
    "from pathlib import Path\nfrom rn50_advisor.advisor.run.rings.agent_ring_folder import RingFolder\n"
    "print(RingFolder(places=[Path(sys.argv[2])]).path, flush=True)\n"
)


def of_a_dead_advisor(place: Path, *, under: tuple[str, ...] = ()) -> Path:
    command = [*under, sys.executable, "-c", MAKES, ROOT, str(place)]
    done = subprocess.run(command, capture_output=True, check=True, text=True)
    folder = Path(done.stdout.strip())
    (folder / "rank-999999999.ring").write_bytes(b"x")
    return folder
