"""Puts the recorder of `run` into this process, which may have imported torch long ago, and takes it out of use again.

Its patches of torch stay once they are there: taking them out of functions that others may have wrapped since would be worse than leaving
them. Out of use they pass every call on.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import rn50_advisor.probes.rank
from rn50_advisor.advisor.run.launch.job_environment import FOLDER_VARIABLE, PATH_VARIABLE, CannotInject, with_recorder

_PACKAGE = "_rn50_advisor_rank"  # as in a job: its processes and tests of them know it by this name
_recorders: list[Any] = []  # the one of this process, once it is there; patches are made once


def runs_under_advisor() -> bool:
    """True in a process of a job that `run` or an outer `watch()` records."""
    return bool(os.environ.get(os.fsdecode(FOLDER_VARIABLE))) or (_PACKAGE in sys.modules and not _recorders)


def start(rings: str) -> None:
    """Records this process from now on: at once, or when it imports torch. Raises whatever the recorder's start does."""
    if _recorders:
        _install_module().permit_inspection(rings)
        _recorders[0].resume(rings)
    elif "torch" in sys.modules:
        _install(rings)
    else:
        sys.meta_path.insert(0, _After("torch", lambda: _install(rings)))


def stop(ending: BaseException | None) -> None:
    """Ends it. `ending`: the exception that left the recorded part."""
    sys.meta_path[:] = [
        finder for finder in sys.meta_path if not (isinstance(finder, _After) and finder.waits_for_torch)
    ]
    for recorder in _recorders:
        recorder.retire(ending)


def _install(rings: str) -> None:
    folder = Path(rn50_advisor.probes.rank.__path__[0])
    spec = importlib.util.spec_from_file_location(
        _PACKAGE, folder / "__init__.py", submodule_search_locations=[str(folder)]
    )
    assert spec is not None and spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules[_PACKAGE] = package
    spec.loader.exec_module(package)
    if importlib.import_module(f"{_PACKAGE}.rank_ring_folder").arm(rings):
        _recorders.append(_install_module().install(rings, _after))


def _install_module() -> Any:
    return importlib.import_module(f"{_PACKAGE}.install")


def _after(name: str, callback: Callable[[], None]) -> _After:
    """A finder that calls back once the module has been imported; of one that is there already, now."""
    if name in sys.modules:
        callback()
    return _After(name, callback)


class _After:
    """As in `inject/sitecustomize.py`, which cannot be imported: it acts when it is."""

    def __init__(self, name: str, callback: Callable[[], None]) -> None:
        self._name = name
        self._callback = callback

    @property
    def waits_for_torch(self) -> bool:
        return self._name == "torch"

    def find_spec(self, name: str, path: Any = None, target: ModuleType | None = None) -> ModuleSpec | None:
        if name != self._name or name in sys.modules:
            return None
        for finder in [each for each in sys.meta_path if not isinstance(each, _After)]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                if spec.loader is not None:
                    self._follow(spec.loader)
                return spec
        return None

    def _follow(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            loader.__dict__.pop("exec_module", None)
            execute(module)
            with contextlib.suppress(ValueError):
                sys.meta_path.remove(self)
            with contextlib.suppress(Exception):  # the recorder's own errors are not those of the import
                self._callback()

        with contextlib.suppress(AttributeError, TypeError):  # a loader without attributes: its module stays unwatched
            loader.exec_module = exec_module


@contextlib.contextmanager
def children_recorded(rings: str) -> Iterator[None]:
    """Processes that this one starts meanwhile are recorded, too: loader workers that are not forked, ranks, scripts."""
    before = {name: os.environb.get(name) for name in (FOLDER_VARIABLE, PATH_VARIABLE)}
    try:
        given = with_recorder(dict(os.environb), Path(rings))
    except CannotInject:
        given = {}
    ours = {name: given[name] for name in before if name in given}
    os.environb.update(ours)
    try:
        yield
    finally:
        for name, value in ours.items():
            if os.environb.get(name) != value:
                continue  # the user has set another one since
            if before[name] is None:
                del os.environb[name]
            else:
                os.environb[name] = before[name] or b""
