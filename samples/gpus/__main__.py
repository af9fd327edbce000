"""`python -m samples.gpus [FOLDER]`: records the stories that are kept for replay, as bundles; FOLDER defaults to samples/runs.

Needs a C compiler for the fake driver. The same stories give the same bundles.
"""

from __future__ import annotations

import contextlib
import json
import runpy
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from rn50_advisor.advisor.store.run_bundle import make_bundle
from samples.gpus.stories import STORIES

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "tests" / "fake_driver" / "build.py"
LIBRARY = "libnvidia-ml.so.1"
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


@contextlib.contextmanager
def recorder(driver: Path) -> Iterator[Callable[..., Path]]:
    """Gives a function that records a story in a folder, over the driver library in `driver`; `changes`: story fields.

    It returns the run folder, or raises CalledProcessError.
    """
    command = [sys.executable, "-m", "samples.gpus.record"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin and process.stdout
        asked, answers = process.stdin, process.stdout

        def record(story: str, folder: Path, **changes: object) -> Path:
            folder.mkdir(parents=True, exist_ok=True)
            run, library = folder / story, (driver / OLD if STORIES[story].old_driver else driver) / LIBRARY
            print(json.dumps([story, str(run), str(library), str(folder / "machine"), changes]), file=asked, flush=True)
            if code := int(answers.readline() or -1):
                raise subprocess.CalledProcessError(code, command)
            return run

        yield record


def main() -> None:
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "samples" / "runs"
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        work = Path(temporary)
        if not build_driver(work):
            sys.exit("no C compiler to build the fake driver with")
        with recorder(work) as record:
            for name, story in STORIES.items():
                if not story.replay:
                    continue
                bundle = make_bundle(record(name, work / "runs" / name), target / f"{name}.tar.gz", force=True)
                print(f"{bundle.name:<24} {bundle.stat().st_size / 1000:6.0f} kB  {story.title}")


if __name__ == "__main__":
    main()
