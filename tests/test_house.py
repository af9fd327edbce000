"""House rules: folders of a manageable size, no needless small modules, names that mean one thing, imports without cycles."""

from __future__ import annotations

import ast
import functools
import json
import re
import shutil
import subprocess
import sys
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import rn50_advisor

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("advisor", "probes", "rules")
MODULES_MAX = 20  # in a folder
LINES_MIN = 60  # in a module with a single importer
# Each report has one file per format; a command has the name of the package that it calls.
SAME_NAME = {
    "html",
    "json",
    "markdown",
    "text",
    "wording",
    "sitecustomize",
    "bench",
    "fleet",
    "report",
    "run",
    "triage",
}
RULE = re.compile(r"[a-z][a-z0-9]{2}\d{3}_\w+")


def module_of(path: Path) -> str:
    name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
    return name.removesuffix(".__init__")


PATHS = {module_of(path): path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*.py"))}


@functools.cache  # each process collects all tests, and few of them need these
def tree_of(name: str) -> ast.Module:
    return ast.parse(PATHS[name].read_text())


def imported(name: str, *, at_import: bool = False) -> Iterator[str]:
    """Yields our modules that this one imports; `at_import`: only those at its top level."""
    body = tree_of(name).body
    if at_import:
        body = [node for node in body if isinstance(node, (ast.Import, ast.ImportFrom))]
    package = name if PATHS[name].name == "__init__.py" else name.rpartition(".")[0]
    for node in (found for statement in body for found in ast.walk(statement)):
        if isinstance(node, ast.Import):
            found = [alias.name.removeprefix("rn50_advisor.") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = (node.module or "").removeprefix("rn50_advisor.")
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([node.module] if node.module else [])])
            inner = {alias.name: f"{base}.{alias.name}" for alias in node.names}
            found = [inner[each] if inner[each] in PATHS else base for each in inner]
        else:
            continue
        yield from (each for each in found if each in PATHS)


def test_no_folder_has_more_than_twenty_modules() -> None:
    count: defaultdict[str, int] = defaultdict(int)
    for path in (path for folder in (*FOLDERS, "samples", "tests") for path in (ROOT / folder).rglob("*.py")):
        count[str(path.parent.relative_to(ROOT))] += path.name not in {"__init__.py", "conftest.py"}
    assert {folder: number for folder, number in count.items() if number > MODULES_MAX} == {}


def test_a_small_module_has_several_importers() -> None:
    importers = defaultdict(set)
    for name in PATHS:
        for other in imported(name):
            importers[other].add(name)
    small = {
        name
        for name, path in PATHS.items()
        if len(path.read_text().splitlines()) < LINES_MIN and path.name != "__init__.py" and len(importers[name]) == 1
    }
    assert {name for name in small if not RULE.fullmatch(name.rpartition(".")[2])} == set()


def test_a_name_means_one_module_or_one_class() -> None:
    modules, classes = defaultdict(list), defaultdict(list)
    for name, path in PATHS.items():
        if path.name != "__init__.py":
            modules[name.rpartition(".")[2]].append(name)
        for node in tree_of(name).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                classes[node.name].append(name)
    assert {name: found for name, found in modules.items() if len(found) > 1 and name not in SAME_NAME} == {}
    assert {name: found for name, found in classes.items() if len(found) > 1} == {}


def test_a_module_with_functions_has_its_test_at_its_own_path() -> None:
    untested = [
        str(path.relative_to(ROOT))
        for name, path in PATHS.items()
        if path.name != "__init__.py"
        and any(isinstance(node, ast.FunctionDef) for node in ast.walk(tree_of(name)))
        and not (ROOT / "tests" / path.relative_to(ROOT)).with_name(f"test_{path.name}").exists()
    ]
    assert untested == []


def test_imports_make_no_circle() -> None:
    state: dict[str, str] = {}

    def visit(name: str, way: tuple[str, ...]) -> None:
        assert state.get(name) != "under way", (*way, name)
        if name not in state:
            state[name] = "under way"
            for other in imported(name, at_import=True):
                if other != name:
                    visit(other, (*way, name))
            state[name] = "done"

    sys.setrecursionlimit(max(sys.getrecursionlimit(), 5000))
    for name in PATHS:
        visit(name, ())


def test_the_guide_names_files_that_exist() -> None:
    named = re.findall(r"`([\w/]+/[\w./]*)`", (ROOT / "CONTRIBUTING.md").read_text())
    folders = (ROOT, ROOT / "advisor", ROOT / "src")
    assert len(named) > 30
    assert [path for path in named if not any((folder / path).exists() for folder in folders)] == []


def test_the_main_paths_are_tests_that_exist() -> None:
    for entry in (ROOT / "tests" / "main_paths.txt").read_text().split():
        file, _, name = entry.partition("::")
        assert f"def {name}(" in (ROOT / "tests" / file).read_text(), entry


def test_the_sources_are_linked_relatively_under_the_one_name() -> None:
    home = Path(rn50_advisor.__path__[0])
    if not (home / FOLDERS[0]).is_symlink():
        pytest.skip("the advisor is not run from its clone")
    assert {folder: str((home / folder).readlink()) for folder in FOLDERS} == {
        name: f"../../{name}" for name in FOLDERS
    }


def test_a_wheel_brings_one_name_and_all_files_and_works(tmp_path: Path) -> None:
    copied = tmp_path / "clone"
    kept = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for name in (*FOLDERS, "src"):
        shutil.copytree(ROOT / name, copied / name, symlinks=True, ignore=kept)
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copied)
    build = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", tmp_path, copied]
    done = subprocess.run(build, capture_output=True, text=True, check=False)
    if "Cannot import 'setuptools" in done.stderr or "No module named pip" in done.stderr:
        pytest.skip(f"THE WHEEL IS NOT TESTED HERE: {done.stderr.splitlines()[-1]}")
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as file:
        names = {name for name in file.namelist() if ".dist-info/" not in name}
        file.extractall(tmp_path / "site")
    assert {name.partition("/")[0] for name in names} == {"rn50_advisor"}
    tracked = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.is_file()]
    wanted = {f"rn50_advisor/{path.relative_to(ROOT)}" for path in tracked if "__pycache__" not in path.parts}
    assert not wanted - names
    call = "import sys; sys.path.insert(0, sys.argv.pop(1)); from rn50_advisor.entry import main; main()"
    command = [
        sys.executable,
        "-c",
        call,
        str(tmp_path / "site"),
        "run",
        "--no-tui",
        "--run-dir",
        str(tmp_path / "runs"),
    ]
    look = "import json, os, sys; print(json.dumps([os.environ['PYTHONPATH'], sys.path]))"
    ran = subprocess.run([*command, "--", sys.executable, "-c", look], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    path, seen = json.loads(ran.stdout)
    assert path.startswith(str(tmp_path / "site")) and not any(entry.startswith(str(tmp_path)) for entry in seen)
