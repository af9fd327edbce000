"""Nothing of a triage remains: its folder, its children, what a killed one left; and it interrupts nobody else."""

from __future__ import annotations

import ast
import sys
import textwrap
from pathlib import Path
from typing import Any

import psutil
import pytest

from rn50_advisor.advisor.triage import child_program
from rn50_advisor.advisor.triage.child_program import run_child, why_not

_ROOT = Path(__file__).resolve().parents[3]
CHILDREN = sorted((_ROOT / "advisor" / "triage" / "children").glob("*.py"))


@pytest.fixture
def programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where children are looked for."""
    monkeypatch.setattr(child_program, "_PROGRAMS", tmp_path)
    return tmp_path


def run(programs: Path, text: str, timeout_s: float = 60.0) -> tuple[child_program.Ended, list[dict[str, Any]]]:
    (programs / "probe.py").write_text(textwrap.dedent(text))
    results: list[dict[str, Any]] = []
    ended = run_child(
        sys.executable, "probe", {"a": 1}, timeout_s=timeout_s, scratch=programs, on_result=results.append
    )
    return ended, results


def test_nothing_is_written_beside_the_scratch_folder(programs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also not by python, torch or CUDA, wherever the shell's variables point."""
    for name in ("TMPDIR", "XDG_CACHE_HOME", "CUDA_CACHE_PATH"):
        monkeypatch.setenv(name, "/nowhere")
    monkeypatch.delenv("PYTHONDONTWRITEBYTECODE", raising=False)
    (programs / "beside.py").write_text("X = 1\n")
    program = """
        import json, os, sys, tempfile
        sys.path.insert(0, os.getcwd())
        import beside
        names = ("TMPDIR", "XDG_CACHE_HOME", "CUDA_CACHE_PATH")
        print(json.dumps({"temporary": tempfile.gettempdir(), **{name: os.environ[name] for name in names}}))
    """
    ended, results = run(programs, program)
    assert ended.code == 0 and set(results[0].values()) == {str(programs)}, ended.last_line
    assert not (programs / "__pycache__").exists()


@pytest.mark.parametrize("path", CHILDREN, ids=lambda path: path.stem)
def test_children_are_python_3_9_and_import_nothing_of_ours(path: Path) -> None:
    tree = ast.parse(path.read_text(), feature_version=(3, 9))
    named = [node for node in ast.walk(tree) if isinstance(node, (ast.Import, ast.ImportFrom))]
    modules = {node.module if isinstance(node, ast.ImportFrom) else node.names[0].name for node in named}
    assert {str(module).partition(".")[0] for module in modules} <= sys.stdlib_module_names


def test_results_come_line_by_line_and_what_is_none_is_left_out(programs: Path) -> None:
    ended, results = run(
        programs,
        """
        import json, sys
        print(json.dumps({"asked": json.loads(sys.argv[1])}), flush=True)
        print("a library says hello")
        print("[1]")
        """,
    )
    assert results == [{"asked": {"a": 1}}] and ended.code == 0


def test_why_a_child_failed_is_explained(programs: Path) -> None:
    ended, _ = run(programs, "raise ImportError('no torch here')")
    assert "no torch here" in why_not(ended, "measuring")
    ended, _ = run(programs, "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    assert "SIGSEGV" in why_not(ended, "measuring")


GRANDCHILD = """
import subprocess, sys, time
sleeper = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print('{"pid": %d}' % sleeper.pid, flush=True)
time.sleep(600)
"""


def test_a_child_that_takes_too_long_ends_with_all_that_it_started(programs: Path) -> None:
    ended, results = run(programs, GRANDCHILD, timeout_s=2.0)
    assert ended.timed_out and "too long" in why_not(ended, "measuring")
    if results:
        psutil.wait_procs([p for p in [_process(results[0]["pid"])] if p], timeout=10)
        assert not _runs(results[0]["pid"])


def test_an_interrupt_ends_the_child_and_all_that_it_started(programs: Path) -> None:
    (programs / "probe.py").write_text(GRANDCHILD)
    pids: list[int] = []

    def interrupt(result: dict[str, Any]) -> None:
        pids.append(result["pid"])
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_child(sys.executable, "probe", {}, timeout_s=60, scratch=programs, on_result=interrupt)
    psutil.wait_procs([p for p in [_process(pids[0])] if p], timeout=10)
    assert not _runs(pids[0])


def _process(pid: int) -> psutil.Process | None:
    try:
        return psutil.Process(pid)
    except psutil.NoSuchProcess:
        return None


def _runs(pid: int) -> bool:
    process = _process(pid)
    return process is not None and process.status() != psutil.STATUS_ZOMBIE


def test_an_interpreter_finds_its_packages_where_the_shell_says(
    programs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On clusters torch often lies in a folder of PYTHONPATH."""
    (programs / "packages").mkdir()
    (programs / "packages" / "only_there.py").write_text("WORD = 'found'\n")
    monkeypatch.setenv("PYTHONPATH", str(programs / "packages"))
    ended, results = run(programs, "import json, only_there; print(json.dumps({'word': only_there.WORD}))")
    assert results == [{"word": "found"}], ended.last_line
