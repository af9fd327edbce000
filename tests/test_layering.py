"""Import rules: reports need no torch, and the recorder in the job needs only the standard library."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import rn50_advisor
import rn50_advisor.probes.rank
from rn50_advisor.probes.rank.layout import STEP_FIELDS

RANK = Path(rn50_advisor.probes.rank.__path__[0])
HOOKS = [RANK / folder / "sitecustomize.py" for folder in ("inject", "inject_unset")]
MODULES = sorted(path for path in RANK.rglob("*.py") if path not in HOOKS)
HEAVY = ("torch", "torchvision", "torchaudio", "triton")


def loaded_by(*modules: str) -> set[str]:
    """Returns the names of all modules that a fresh process has loaded after importing these."""
    code = f"import sys, json, {', '.join(modules)}; print(json.dumps(sorted(sys.modules)))"
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "RN50_ADVISOR_DIR")}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout))


@pytest.mark.parametrize(
    "module",
    [
        "rn50_advisor.advisor.verdict.diagnose",
        "rn50_advisor.advisor.report",
        "rn50_advisor.advisor.tui.app",
        "rn50_advisor.advisor.tui.report_source",
        "rn50_advisor.advisor.cli",
        "rn50_advisor.advisor.run.launch.launcher",
    ],
)
def test_a_fresh_process_never_loads_torch(module: str) -> None:
    assert not {name.partition(".")[0] for name in loaded_by(module)} & set(HEAVY)


def test_the_commands_are_found_without_importing_them() -> None:
    loaded = loaded_by("rn50_advisor.advisor.cli")
    heavy = {
        "textual",
        "jinja2",
        "rn50_advisor.advisor.tui",
        "rn50_advisor.advisor.report.html",
        "rn50_advisor.advisor.run.launch.launcher",
        "rn50_advisor.advisor.verdict.diagnose",
    }
    assert not heavy & loaded


def test_all_commands_import_without_torch() -> None:
    from rn50_advisor.advisor.cli import COMMANDS

    modules = sorted({f"rn50_advisor.advisor.commands.{module}" for module, _ in COMMANDS.values()})
    assert not {name.partition(".")[0] for name in loaded_by(*modules)} & set(HEAVY)


def imported(tree: ast.AST) -> set[str]:
    """Returns the top-level packages that a module imports absolutely, anywhere in it."""
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add((node.module or "").partition(".")[0])
    return found


def runs_at_import(tree: ast.Module) -> ast.Module:
    """Returns the module without its functions and methods, which do not run at import."""
    kept = [node for node in tree.body if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef))]
    for node in kept:
        if isinstance(node, ast.ClassDef):
            node.body = [child for child in node.body if not isinstance(child, ast.FunctionDef)]
    return ast.Module(kept, [])


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_recorder_imports_the_standard_library_and_itself(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    # torch only inside functions, which run after the job has imported it
    assert imported(tree) - sys.stdlib_module_names <= {"torch"}
    assert imported(runs_at_import(tree)) <= sys.stdlib_module_names


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.stem)
def test_the_recorder_is_python_3_9(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    assert not [node for node in ast.walk(tree) if isinstance(node, ast.Match)]  # feature_version lets it through


@pytest.mark.parametrize("path", HOOKS, ids=lambda path: path.parent.name)
def test_the_hook_is_any_python_3_and_imports_next_to_nothing(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 4))
    assert not [node for node in ast.walk(tree) if isinstance(node, (ast.JoinedStr, ast.NamedExpr, ast.AnnAssign))]
    assert imported(runs_at_import(tree)) == {"os", "sys", "sitecustomize"}  # the last: the user's own


def test_the_entry_needs_nothing_of_ours_and_no_dependency() -> None:
    for path in sorted(Path(rn50_advisor.__path__[0]).glob("*.py")):
        assert imported(runs_at_import(ast.parse(path.read_text()))) <= sys.stdlib_module_names | {"rn50_advisor"}


def test_the_layout_needs_no_numpy() -> None:
    loaded = loaded_by("rn50_advisor.probes.rank.layout")
    assert "numpy" not in loaded and STEP_FIELDS
    assert not {name for name in loaded if name.startswith("rn50_advisor.advisor")}


def test_rules_and_analysis_touch_no_file_clock_or_process() -> None:
    import rn50_advisor.advisor.analysis
    from rn50_advisor import rules

    forbidden = {"os", "subprocess", "time", "sqlite3", "socket", "pathlib", "threading", "datetime"}
    for package in (rules, rn50_advisor.advisor.analysis):
        for path in sorted(Path(package.__path__[0]).rglob("*.py")):
            assert not imported(ast.parse(path.read_text())) & forbidden, path.name
