"""Fixtures that all tests share: a run folder, images, a fake driver, a check for processes left behind; skips tests without torch."""

from __future__ import annotations

import contextlib
import gc
import importlib.util
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from rn50_advisor.advisor import report

ROOT = Path(__file__).resolve().parents[1]
SESSION_VARIABLE = "RN50_TEST_SESSION"  # inherited by everything a test starts, also by what outlives its parent


def pytest_configure(config: pytest.Config) -> None:
    os.environ[SESSION_VARIABLE] = str(os.getpid())
    # A script's background jobs and nohup ignore these signals; all processes that tests signal would inherit that.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)


@pytest.fixture(autouse=True)
def json_fits_its_schema(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test of this process writes as JSON is held against the published schema of its contract."""
    if importlib.util.find_spec("jsonschema") is None:
        return
    from published_schemas import by_contract, misfits

    written = report._json

    def checked(document: dict[str, Any]) -> str:
        text = written(document)
        wrong = misfits(text) if document.get("schema") in by_contract() else []
        assert not wrong, f"it does not fit what `rn50-advisor schema` says: {wrong[:5]}"
        return text

    monkeypatch.setattr(report, "_json", checked)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keeps the garbage collector from what lasts as long as the tests: looking through it takes a quarter of the time of their imports."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    main_paths = set((ROOT / "tests" / "main_paths.txt").read_text().split())
    for item in items:
        if f"{item.path.relative_to(ROOT / 'tests')}::{getattr(item, 'originalname', item.name)}" in main_paths:
            item.add_marker(pytest.mark.main_path)
    missing = [name for name in ("torch", "torchvision") if importlib.util.find_spec(name) is None]
    if not missing:
        return
    skip = pytest.mark.skip(reason=f"{' and '.join(missing)} not installed: pip install '.[train]'")
    for item in items:
        if "torch" in item.keywords:
            item.add_marker(skip)


@pytest.fixture
def run_folder(tmp_path: Path) -> Path:
    """An empty folder for `--run-dir`."""
    folder = tmp_path / "runs"
    folder.mkdir()
    return folder


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny ImageFolder: train/ and val/, two classes, full-size JPEGs. Read only: tests share it."""
    pytest.importorskip("PIL", reason="Pillow not installed: pip install '.[train]'")
    folder = tmp_path_factory.mktemp("images")
    command = [sys.executable, str(ROOT / "samples" / "make_images.py"), str(folder)]
    subprocess.run([*command, "--classes", "2", "--per-class", "8", "--val-per-class", "2", "--seed", "7"], check=True)
    return folder


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the fake NVIDIA driver, for LD_LIBRARY_PATH; its subfolder `old` has one that lacks newer functions."""
    build = runpy.run_path(str(ROOT / "tests" / "fake_driver" / "build.py"))
    if build["compiler"]() is None:
        untested = "THE GPU PROBE IS NOT TESTED HERE: no C compiler to build the fake driver with"
        if os.environ.get("CI"):  # nobody reads skip messages there
            pytest.fail(untested)
        pytest.skip(untested)
    folder = tmp_path_factory.mktemp("fake_driver")
    build["build"](folder)
    (folder / "old").mkdir()
    build["build"](folder / "old", old=True)
    return folder


@pytest.fixture(scope="session", autouse=True)
def no_process_left_behind() -> Iterator[None]:
    """Fails the session (as an error of its last test) if a process that a test started still runs at its end."""
    yield
    left = [process for process in psutil.process_iter() if _belongs_to_this_session(process)]
    _, alive = psutil.wait_procs(left, timeout=5)  # some are just ending
    commands = [command for process in alive if (command := _command_if_running(process))]
    for process in alive:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    assert not commands, "processes left behind by tests:\n" + "\n".join(commands)


def _belongs_to_this_session(process: psutil.Process) -> bool:
    if process.pid == os.getpid():
        return False
    try:
        if process.environ().get(SESSION_VARIABLE) != str(os.getpid()):
            return False
        # this process's own resource tracker of multiprocessing ends with it, not before
        return "multiprocessing.resource_tracker" not in " ".join(process.cmdline())
    except psutil.Error:
        return False  # gone, or another user's


def _command_if_running(process: psutil.Process) -> str:
    try:
        return "" if process.status() == psutil.STATUS_ZOMBIE else f"{process.pid}: {' '.join(process.cmdline())[:200]}"
    except psutil.NoSuchProcess:
        return ""
