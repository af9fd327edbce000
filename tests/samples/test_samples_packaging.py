"""Installing the advisor beside somebody's torch must leave that torch alone: nothing that it needs may ask for torch."""

from __future__ import annotations

import sys
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest

packaging = pytest.importorskip("packaging.requirements")

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[2]
NEVER = {"torch", "torchvision", "torchaudio", "triton"}


def canonical(name: str) -> str:
    return name.lower().replace("_", "-").replace(".", "-")


def needed_without_extras(declared: list[str]) -> set[str]:
    wanted = [packaging.Requirement(line) for line in declared]
    return {canonical(r.name) for r in wanted if r.marker is None or r.marker.evaluate({"extra": ""})}


def test_the_project_declares_torch_in_an_extra_only() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert "dependencies" not in project.get("dynamic", [])
    assert not needed_without_extras(project["dependencies"]) & NEVER
    assert {"torch", "torchvision"} <= needed_without_extras(project["optional-dependencies"]["train"])


def test_the_numpy_beside_an_older_torch_is_left_alone() -> None:
    """Any that it asks for more than there is ends in the newest one, with which a torch built for numpy 1 does not work."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (numpy,) = [r for r in map(packaging.Requirement, project["dependencies"]) if r.name == "numpy"]
    assert all(version in numpy.specifier for version in ("1.23.5", "1.24.4", "1.26.4", "2.2.0"))


def test_the_installed_metadata_asks_for_no_torch() -> None:
    assert not needed_without_extras(requires("rn50-advisor") or []) & NEVER


def test_nothing_the_advisor_depends_on_asks_for_torch() -> None:
    seen: set[str] = set()
    waiting = {"rn50-advisor"}
    while waiting:
        name = waiting.pop()
        seen.add(name)
        try:
            waiting |= needed_without_extras(requires(name) or []) - seen
        except PackageNotFoundError:
            continue  # for another platform or interpreter
    assert {"numpy", "textual"} <= seen
    assert not seen & NEVER
