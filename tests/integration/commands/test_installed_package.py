"""The wheel and the source distribution, installed where there is no torch: the command works, and `demo` shows its recorded run."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from rn50_advisor.advisor import __version__

pytestmark = pytest.mark.xdist_group("packages")  # built once

ROOT = Path(__file__).resolve().parents[3]
SOURCES = ("advisor", "probes", "rules", "src")
FILES = ("pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md")
NO_INDEX = ("No matching distribution", "Could not find a version", "Failed to establish", "Temporary failure")


def called(*command: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    kept = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "RN50_", "VIRTUAL_ENV"))
    }
    return subprocess.run([*map(str, command)], cwd=cwd, env=kept, capture_output=True, text=True, check=False)


def built(*command: object, cwd: Path) -> None:
    done = called(*command, cwd=cwd)
    if "No module named 'setuptools" in done.stderr or "No module named pip" in done.stderr:
        pytest.skip(f"THE PACKAGES ARE NOT TESTED HERE: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The wheel made from the clone, the source distribution, and the wheel made from that."""
    home = tmp_path_factory.mktemp("packages")
    clone = home / "clone"
    for name in SOURCES:
        kept = shutil.ignore_patterns("__pycache__", "*.egg-info")
        shutil.copytree(ROOT / name, clone / name, symlinks=True, ignore=kept)
    for name in FILES:
        shutil.copy(ROOT / name, clone)
    sdist = f"from setuptools import build_meta; build_meta.build_sdist({str(home)!r})"
    built(sys.executable, "-c", sdist, cwd=clone)
    (archive,) = home.glob("*.tar.gz")
    wheel = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w")
    built(*wheel, home / "direct", clone, cwd=home)
    built(*wheel, home / "from-sdist", archive, cwd=home)
    return {folder: next((home / folder).glob("*.whl")) for folder in ("direct", "from-sdist")} | {"sdist": archive}


def test_the_source_distribution_gives_the_same_wheel(packages: dict[str, Path]) -> None:
    contents = {}
    for name in ("direct", "from-sdist"):
        with zipfile.ZipFile(packages[name]) as wheel:
            contents[name] = {
                each.filename: each.CRC for each in wheel.infolist() if not each.filename.endswith("RECORD")
            }
    assert contents["direct"] == contents["from-sdist"]
    with tarfile.open(packages["sdist"]) as sdist:
        assert not [name for name in sdist.getnames() if "/tests" in name]
    assert "rn50_advisor/advisor/commands/demo/resnet50.tar.gz" in contents["direct"]


def test_the_metadata_is_fit_for_an_index(packages: dict[str, Path]) -> None:
    with zipfile.ZipFile(packages["direct"]) as wheel:
        (name,) = [each for each in wheel.namelist() if each.endswith(".dist-info/METADATA")]
        metadata, _, readme = wheel.read(name).decode().partition("\n\n")
    assert {
        "License-Expression: Apache-2.0",
        "License-File: LICENSE",
        "Description-Content-Type: text/markdown",
    } <= set(metadata.splitlines())
    assert "Project-URL" not in metadata and readme.startswith("# rn50-advisor")
    assert re.findall(r"\]\((?!https?:|#)", readme) == [], "an index has neither the pictures nor the pages"
    assert "rn50-advisor run -- torchrun" in readme and "reading a report" in readme


@pytest.fixture(scope="module")
def programs(packages: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The programs of an environment with what the package depends on, and without torch."""
    home = tmp_path_factory.mktemp("clean")
    built(sys.executable, "-m", "venv", home / "env", cwd=home)
    installed(home / "env" / "bin", packages["direct"])
    return home / "env" / "bin"


def installed(programs: Path, *arguments: object) -> None:
    done = called(programs / "pip", "install", "-q", *arguments, cwd=programs)
    if done.returncode and any(word in done.stderr for word in NO_INDEX):
        pytest.skip(f"NOT INSTALLED HERE, NO PACKAGE INDEX: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", ["direct", "sdist"])
def test_it_works_in_an_environment_without_torch(
    packages: dict[str, Path], programs: Path, tmp_path: Path, name: str
) -> None:
    installed(programs, "--no-deps", "--force-reinstall", packages[name])
    assert called(programs / "python", "-c", "import torch", cwd=tmp_path).returncode == 1
    version = called(programs / "rn50-advisor", "--version", cwd=tmp_path)
    assert version.stdout == f"rn50-advisor {__version__}\n"
    demo = called(programs / "rn50-advisor", "demo", "--no-tui", cwd=tmp_path)
    assert (demo.returncode, demo.stderr) == (0, "") and "(DAT003)" in demo.stdout
    module = called(programs / "python", "-m", "rn50_advisor", "rules", "DAT003", cwd=tmp_path)
    assert module.stdout.startswith("DAT003  "), module.stderr
    assert list(tmp_path.iterdir()) == []
