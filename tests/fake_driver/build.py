"""Builds the fake NVIDIA driver library of nvml.c: `python build.py DIRECTORY`, then LD_LIBRARY_PATH=DIRECTORY."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

SOURCE = Path(__file__).with_name("nvml.c")


def compiler() -> str | None:
    return shutil.which("gcc") or shutil.which("cc")


def build(directory: Path, *, old: bool = False) -> Path:
    """Makes libnvidia-ml.so.1 in `directory`, `old`: without the functions that came late. CalledProcessError has the compiler's words."""
    library = directory / "libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", "-Wl,-soname,libnvidia-ml.so.1"]
    flags += ["-DOLD_DRIVER"] if old else []
    subprocess.run([compiler() or "cc", *flags, "-o", str(library), str(SOURCE)], check=True)
    return library


if __name__ == "__main__":
    print(build(Path(sys.argv[1])))
