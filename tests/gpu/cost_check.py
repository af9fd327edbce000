"""Overhead on a job of short steps on a GPU, events included: the same loop alone and under the advisor, in pairs.

python tests/gpu/cost_check.py FOLDER [--pairs N] [ARGUMENTS OF THE LOOP]: prints one line; exits 1 if the recorder takes more than 1 %
of the steps by its own clock. Pairs of processes differ by some percent anyway: their ratio is printed, but not judged.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
LOOP = (sys.executable, str(ROOT / "samples" / "faults" / "jobs" / "compute" / "gpu.py"))
SHORT = ("--model=resnet18", "--image-size=64", "--batch-size=32", "--steps=2000")  # about 5 ms a step
MOST = 0.01  # of a step


def pair(folder: Path, arguments: list[str]) -> tuple[float, float, dict[str, float]]:
    """Returns (seconds per step alone, seconds per step under the advisor, the overhead that the advisor's report states)."""
    took, report = folder / "took", folder / "report.json"
    job = [*LOOP, *arguments, f"--took={took}"]
    subprocess.run(job, check=True)
    alone = float(took.read_text())
    watched = (sys.executable, "-m", "rn50_advisor.advisor.cli", "run", "--no-tui", f"--run-dir={folder / 'runs'}")
    subprocess.run([*watched, f"--report={report}", "--", *job], check=True, cwd=ROOT, stderr=subprocess.DEVNULL)
    return alone, float(took.read_text()), json.loads(report.read_text())["overhead"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--pairs", type=int, default=3)
    asked, arguments = parser.parse_known_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    alone, watched, own = zip(*(pair(asked.folder, arguments or list(SHORT)) for _ in range(asked.pairs)), strict=True)
    more = [100 * (after / before - 1) for before, after in zip(alone, watched, strict=True)]
    share = statistics.median(cost["step_share"] for cost in own)
    print(
        f"{1e3 * statistics.median(alone):.2f} ms a step; the recorder took {100 * share:.2f} % of it,",
        f"{statistics.median(cost['us_per_step'] for cost in own):.0f} us; under the advisor {min(more):+.1f} to {max(more):+.1f} %",
    )
    return share > MOST


if __name__ == "__main__":
    sys.exit(main())
