"""Records the run that `rn50-advisor demo` replays: `python -m samples.record_demo`, on a quiet machine, in some three minutes.

It is the job of `make demo` with its bottleneck. Its advice is tried right after it, for the speed-up that README states.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import rn50_advisor
from rn50_advisor.advisor.commands.demo.demo import RUN
from rn50_advisor.advisor.store.run_bundle import make_bundle
from samples import demo

NAME = "resnet50"
HOST = "node0"
BYTES_MAX = 300_000
# What stands in the bundle for folders of the machine that recorded it.
JOB, ENVIRONMENT, PYTHON, ADVISOR = "/home/user/resnet50", "/opt/train", "/usr", "/opt/rn50-advisor"


def main() -> None:
    setting = demo.choose_setting(demo.look_at_machine())
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary).resolve()
        shutil.copy(demo.SAMPLES / "train.py", folder)
        make = [sys.executable, str(demo.SAMPLES / "make_images.py"), "images", "--classes", str(demo.CLASSES)]
        make += ["--per-class", str(setting.per_class), "--val-per-class", "4", "--scale", str(setting.scale)]
        subprocess.run(make, cwd=folder, check=True)
        run = _recorded(setting, folder)
        print(json.dumps(_tried(setting, folder, run)["trials"], indent=1))
        packed = folder / "packed" / NAME
        shutil.copytree(run, packed)
        replace_places(packed / "run.sqlite", places(folder), socket.gethostname())
        make_bundle(packed, RUN, force=True, with_code=True)
    RUN.chmod(0o644)
    print(f"{RUN}: {RUN.stat().st_size:,} bytes")
    if RUN.stat().st_size > BYTES_MAX:
        raise SystemExit(f"That is more than {BYTES_MAX:,}.")


def places(job: Path) -> dict[str, str]:
    """Returns this machine's folders and what replaces them, inner folders first."""
    source = Path(rn50_advisor.__path__[0])
    found = {str(source.parent): ADVISOR, str((source / "advisor").resolve().parent): ADVISOR}
    found |= {str(job): JOB, sys.prefix: ENVIRONMENT, sys.base_prefix: PYTHON}
    return dict(sorted(found.items(), key=lambda pair: -len(pair[0])))


def replace_places(database: Path, replaced: Mapping[str, str], host: str) -> None:
    """Replaces folders of this machine at any place of a text, and its name where that is the whole text or JSON value."""
    with closing(sqlite3.connect(database, isolation_level=None)) as db:
        db.create_function("replaced", 1, lambda value: _replaced(value, replaced, host), deterministic=True)
        for (table,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            columns = [row[1] for row in db.execute(f'PRAGMA table_info("{table}")') if row[2].upper() == "TEXT"]
            if columns:
                changes = ", ".join(f'"{name}" = replaced("{name}")' for name in columns)
                db.execute(f'UPDATE "{table}" SET {changes}')


def _recorded(setting: demo.Setting, folder: Path) -> Path:
    """Runs the job under the advisor. Returns the run's folder."""
    runs = folder / "runs"
    _run_advisor(["run", "--no-tui", "--run-dir", str(runs), "--name", NAME], _job(setting), setting, folder)
    (run,) = runs.iterdir()
    return run


def _tried(setting: demo.Setting, folder: Path, run: Path) -> dict[str, Any]:
    result = folder / "tried.json"
    job = [*_job(setting), "--steps", demo.TRIAL_STEPS]
    _run_advisor(["try", str(run), "-o", str(result)], job, setting, folder)
    tried: dict[str, Any] = json.loads(result.read_text())
    return tried


def _job(setting: demo.Setting) -> list[str]:
    torchrun = ["torchrun", "--standalone", f"--nproc_per_node={setting.ranks}"]
    return [*torchrun, "train.py", "--data", "images", "--workers", "0", *setting.flags]


def _run_advisor(arguments: Sequence[str], job: Sequence[str], setting: demo.Setting, folder: Path) -> None:
    path = f"{demo.BIN}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **setting.environment, "PATH": path}
    subprocess.run([str(demo.BIN / "rn50-advisor"), *arguments, "--", *job], cwd=folder, env=environment, check=True)


def _replaced(value: Any, folders: Mapping[str, str], host: str) -> Any:
    if not isinstance(value, str):
        return value
    for old, new in folders.items():
        value = value.replace(old, new)
    return HOST if value == host else value.replace(json.dumps(host), json.dumps(HOST))


if __name__ == "__main__":
    main()
