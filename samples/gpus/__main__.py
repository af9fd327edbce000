"""`python -m samples.gpus [FOLDER]`: records the stories that are kept for replay, as bundles; FOLDER defaults to samples/runs.

Needs a C compiler for the fake driver. The same stories give the same bundles.
"""

from __future__ import annotations

import json
import os
import runpy
import subprocess
import sys
import tempfile
from pathlib import Path

from rn50_advisor.advisor.store.run_bundle import make_bundle
from samples.gpus.stories import STORIES

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "tests" / "fake_driver" / "build.py"
OLD = "old"  # subfolder for the fake driver's build without newer functions


def build_driver(folder: Path) -> bool:
    """Builds the fake driver in `folder`, and the old one in its subfolder; returns False if there is no compiler."""
    making = runpy.run_path(str(BUILD))
    if making["compiler"]() is None:
        return False
    (folder / OLD).mkdir(parents=True, exist_ok=True)
    making["build"](folder)
    making["build"](folder / OLD, old=True)
    return True


def record_in_process(story: str, driver: Path, folder: Path, **changes: object) -> Path:
    """Records a story in a separate process over the driver library in `driver`; returns its run folder. `changes`: story fields."""
    folder.mkdir(parents=True, exist_ok=True)
    script, run = folder / "machine", folder / story
    library = driver / OLD if STORIES[story].old_driver else driver
    environment = {**os.environ, "LD_LIBRARY_PATH": str(library), "FAKE_NVML_SCRIPT": str(script)}
    command = [sys.executable, "-m", "samples.gpus.record", story, str(run), str(script), json.dumps(changes)]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    return run


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "samples" / "runs"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        if not build_driver(work):
            sys.exit("no C compiler to build the fake driver with")
        for name, story in STORIES.items():
            if story.replay:
                bundle = make_bundle(
                    record_in_process(name, work, work / "runs" / name), target / f"{name}.tar.gz", force=True
                )
                print(f"{bundle.name:<24} {bundle.stat().st_size / 1000:6.0f} kB  {story.title}")


if __name__ == "__main__":
    main()
