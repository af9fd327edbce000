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

from advisor.store.bundle import make_bundle
from samples.gpus.stories import STORIES

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "tests" / "fake_driver" / "build.py"


def record_in_process(story: str, driver: Path, folder: Path, **changes: object) -> Path:
    """The run folder of a story, recorded by a process of its own over the driver library in `driver`; `changes`: fields of the story."""
    folder.mkdir(parents=True, exist_ok=True)
    script, run = folder / "machine", folder / story
    environment = {**os.environ, "LD_LIBRARY_PATH": str(driver), "FAKE_NVML_SCRIPT": str(script)}
    command = [sys.executable, "-m", "samples.gpus.record", story, str(run), str(script), json.dumps(changes)]
    subprocess.run(command, env=environment, cwd=ROOT, check=True)
    return run


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "samples" / "runs"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        runpy.run_path(str(BUILD))["build"](work)
        for name, story in STORIES.items():
            if story.replay:
                bundle = make_bundle(
                    record_in_process(name, work, work / "runs" / name), target / f"{name}.tar.gz", force=True
                )
                print(f"{bundle.name:<24} {bundle.stat().st_size / 1000:6.0f} kB  {story.title}")


if __name__ == "__main__":
    main()
